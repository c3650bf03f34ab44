"""Figure 3 of the paper and those of its appendix: certified accuracy by Clopper-Pearson, Bonferroni, CPM and ours.

A run of duels keeps the labels of its draws, so that all methods see the same ones; those for labels certify the
classifier of the labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.data import Dataset, digits, open_data
from smoothcert.experiments.many_classes import efficientnet_lite0, imagenet_pictures
from smoothcert.experiments.reproduction import Result, Scale, Stage, canvas, digits_network
from smoothcert.plan import Duels
from smoothcert.report.figure import COLOURS
from smoothcert.store import Run
from smoothcert.summary import certified_radii, curve

SIGMAS = (0.12, 0.25, 0.5, 1.0)
IN_SIGMAS = (0.5, 1.0, 2.0, 3.0)
"""The radii of the table, in units of σ."""

NAMES = {
    "mono": "Clopper-Pearson",
    "bonferroni": "Bonferroni",
    "cpm": "CPM",
    "pairwise": "pairwise (ours)",
    "duels": "duels (ours)",
}


@dataclass(frozen=True)
class Trial:
    """One network on one data set, certified with each number of draws."""

    name: str
    model: torch.nn.Module
    data: Dataset
    sigma: float
    skip: int
    limit: int
    draws: tuple[int, ...]


def trials(stage: Stage) -> Iterator[Trial]:
    """What is certified at each scale; n = 1 000 is drawn from the same noise as the first 1 000 of n = 10 000."""
    if stage.scale is Scale.SMOKE:
        yield Trial("digits_cnn", digits_network("digits_cnn"), digits(train=False), 0.25, 1, 40, (1_000,))
        return
    arch, skip, limit = ("cifar_small", 50, 200) if stage.scale is Scale.CPU else ("cifar_resnet110", 10, 1_000)
    for sigma in SIGMAS:
        yield Trial(arch, stage.network(arch, sigma), stage.cifar10(), sigma, skip, limit, (1_000, 10_000))
    if stage.scale is Scale.CPU:
        yield Trial("efficientnet_lite0", efficientnet_lite0(), imagenet_pictures(), 0.1, 1, 20, (1_000,))
    elif stage.imagenet is not None:
        pictures = open_data(str(stage.imagenet), resize=256, crop=224)
        for sigma in SIGMAS[1:]:
            yield Trial("resnet50", stage.network("resnet50", sigma), pictures, sigma, 100, 500, (1_000, 10_000))


def certified(trial: Trial, n: int, stage: Stage) -> Run:
    """The run of a trial at n, resumed where it was stopped."""
    name = f"{trial.name}-sigma{trial.sigma:g}-n{n}"
    smoothed = stage.smoothed(trial.model, trial.data, trial.sigma, Duels())
    return smoothed.certify_dataset(
        trial.data,
        out=stage.out / f"confidence-duels-{name}.smoothcert",
        n=n,
        skip=trial.skip,
        limit=trial.limit,
        model_name=trial.name,
        on_progress=stage.meter(name),
    )


def confidence(stage: Stage) -> Result:
    """Certified accuracy against the radius for each trial and n, with the distribution of c*."""
    panels = [(trial, n, certified(trial, n, stage)) for trial in trials(stage) for n in trial.draws]
    numbers, rows = [], []
    for trial, n, run in panels:
        won = {m: certified_radii(run.certificates(m), run.labels) for m in NAMES}
        buckets = Counter(c.num_buckets for c in run.certificates("cpm"))
        radii = trial.sigma * np.array(IN_SIGMAS)
        shares = {m: [float((w >= r).mean()) for r in radii] for m, w in won.items()}
        average = {m: float(w.clip(0).mean()) for m, w in won.items()}
        rows.append((f"{trial.name} σ={trial.sigma:g} n={n}", *[""] * (1 + len(radii))))
        rows += [(f"  {NAMES[m]}", f"{average[m]:.4f}", *(f"{v:.3f}" for v in shares[m])) for m in NAMES]
        numbers.append(
            {
                "model": trial.name,
                "sigma": trial.sigma,
                "n0": run.plan.question.n0,
                "n": n,
                "alpha": run.plan.question.alpha,
                "inputs": len(run),
                "classes": run.plan.classifier.num_classes,
                "average_radius": average,
                "radii": radii.tolist(),
                "certified_accuracy": shares,
                "buckets": {str(k): v for k, v in sorted(buckets.items())},
                "share_of_radii": _comparison(won, trial.sigma),
                "duels_against_pairwise": _image_by_image(won, trial.sigma),
                "curves": {m: [v.tolist() for v in curve(w)] for m, w in won.items()},
            }
        )
    return Result(
        title="Average certified radius, and certified accuracy at multiples of σ; α = 0.001",
        columns=("run", "ACR", *(f"{k:g}σ" for k in IN_SIGMAS)),
        rows=rows,
        numbers={"panels": numbers},
        figure=_figure(numbers),
        remarks=[
            f"{p['model']} σ={p['sigma']:g} n={p['n']}: c* = "
            + ", ".join(f"{k} ({v} inputs)" for k, v in p["buckets"].items())
            + "; of all radii up to 4σ, "
            + ", ".join(f"{what} at {share:.1%}" for what, share in p["share_of_radii"].items())
            + "; duels against pairwise: larger on {larger} inputs, smaller on {smaller}, there by {less:.3f}σ on "
            "average and {most:.3f}σ at most".format(**p["duels_against_pairwise"])
            for p in numbers
        ],
    )


def _comparison(won: dict[str, NDArray[np.float64]], sigma: float) -> dict[str, float]:
    """At which share of 200 radii up to 4σ does CPM certify more, or less, than both others, and pairwise less?"""
    radii = sigma * np.linspace(0.02, 4, 200)
    share = {m: (w[:, None] >= radii).mean(axis=0) for m, w in won.items()}
    others = np.stack([share["mono"], share["bonferroni"]])
    best = np.maximum(others.max(axis=0), share["cpm"])
    return {
        "CPM above both": float((share["cpm"] > others.max(axis=0)).mean()),
        "CPM below both": float((share["cpm"] < others.min(axis=0)).mean()),
        "pairwise below any": float((share["pairwise"] < best).mean()),
        "duels below pairwise": float((share["duels"] < share["pairwise"]).mean()),
    }


def _image_by_image(won: dict[str, NDArray[np.float64]], sigma: float) -> dict[str, float]:
    """On how many inputs the radius of duels is larger, or smaller, than that of pairwise; and by how much, in σ, it is
    smaller where it is."""
    gain = (won["duels"].clip(0) - won["pairwise"].clip(0)) / sigma
    less = -gain[gain < 0]
    return {
        "larger": int((gain > 0).sum()),
        "smaller": len(less),
        "less": float(less.mean()) if len(less) else 0.0,
        "most": float(less.max()) if len(less) else 0.0,
    }


def _figure(panels: list[dict[str, Any]]) -> Any:
    with canvas((len(panels) + 1) // 2, min(2, len(panels))) as (figure, axes):
        for panel, axis in zip(panels, axes.flat, strict=False):
            for (method, label), colour in zip(NAMES.items(), COLOURS, strict=False):
                x, y = panel["curves"][method]
                axis.step([*x, x[-1]], [*y, 0], where="pre", label=label, color=colour)
            axis.set_title(f"{panel['model']}, σ = {panel['sigma']:g}, n = {panel['n']:,}")
            axis.set_xlim(left=0)
            axis.set_ylim(0, 1)
        axes.flat[0].legend(frameon=False, fontsize=7)
        for axis in axes.flat[len(panels) :]:
            axis.set_visible(False)
        figure.supxlabel(r"radius ($\ell_2$)", fontsize=8)
        figure.supylabel("certified accuracy", fontsize=8)
    return figure
