"""Figure 3 of the paper and those of its appendix: certified accuracy by Clopper-Pearson, Bonferroni, CPM and ours.

A run of duels keeps the labels of its draws, so that all methods see the same ones; those for labels certify the
classifier of the labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.data import Dataset, digits
from smoothcert.experiments.confidence_figures import NAMES, columns, overview
from smoothcert.experiments.many_classes import efficientnet_lite0, imagenet_pictures
from smoothcert.experiments.reproduction import Part, Result, Scale, Stage, digits_network, draws_of
from smoothcert.experiments.sources import NONE, together
from smoothcert.plan import Duels
from smoothcert.store import Run
from smoothcert.summary import certified_radii, curve

SIGMAS = (0.12, 0.25, 0.5, 1.0)
CIFAR_NETWORKS = {Scale.CPU: "cifar_small", Scale.PAPER: "cifar_resnet110"}
N0 = 100
IN_SIGMAS = (0.5, 1.0, 2.0, 3.0)
"""The radii of the table, in units of σ."""


@dataclass(frozen=True)
class Series:
    """Networks trained under several σ, each smoothed with its own, on every `skip`-th of the data."""

    name: str
    sigmas: Sequence[float]
    networks: Callable[[], list[torch.nn.Module]]
    data: Callable[[], Dataset]
    skip: int
    limit: int
    draws: tuple[int, ...] = (1_000, 10_000)


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


def series(stage: Stage) -> list[Series]:
    """What is certified at each scale; n = 1 000 is drawn from the same noise as the first 1 000 of n = 10 000."""
    if stage.scale is Scale.SMOKE:
        few = "digits_cnn"
        return [Series(few, (0.25,), lambda: [digits_network(few)], lambda: digits(train=False), 1, 40, (1_000,))]
    small, large = CIFAR_NETWORKS[stage.scale], "resnet50"
    skip, limit = (50, 200) if stage.scale is Scale.CPU else (10, 1_000)
    wanted = [Series(small, SIGMAS, partial(stage.networks, small, SIGMAS), stage.cifar10, skip, limit)]
    if stage.scale is Scale.CPU:
        pictures = Series(
            "efficientnet_lite0", (0.1,), lambda: [efficientnet_lite0()], imagenet_pictures, 1, 20, (1_000,)
        )
        return [*wanted, pictures]
    if stage.sources.imagenet != NONE:
        sigmas = SIGMAS[1:]
        wanted.append(Series(large, sigmas, partial(stage.networks, large, sigmas), stage.imagenet, 100, 500))
    return wanted


def trials(stage: Stage) -> list[Trial]:
    """All networks and data, opened, or one error that says what is missing."""
    wanted = series(stage)
    opened = together(*(opener for s in wanted for opener in (s.networks, s.data)))
    return [
        Trial(s.name, network, data, sigma, s.skip, stage.size.inputs(s.limit), stage.size.numbers(s.draws))
        for s, networks, data in zip(wanted, opened[::2], opened[1::2], strict=True)
        for sigma, network in zip(s.sigmas, networks, strict=True)
    ]


def confidence_parts(stage: Stage) -> list[Part]:
    """The draws of each trial."""
    return [
        draws_of(
            t.name,
            t.limit * sum(stage.size.draws(N0) + n for n in t.draws),
            stage.smoothed(t.model, t.data, t.sigma, Duels()),
            t.data,
        )
        for t in trials(stage)
    ]


def certified(trial: Trial, n: int, stage: Stage) -> Run:
    """The run of a trial at n, resumed where it was stopped."""
    name = f"{trial.name}-sigma{trial.sigma:g}-n{n}"
    smoothed = stage.smoothed(trial.model, trial.data, trial.sigma, Duels())
    return smoothed.certify_dataset(
        trial.data,
        out=stage.out / f"confidence-duels-{name}.smoothcert",
        n0=stage.size.draws(N0),
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
        figure=overview(numbers),
        pdfs=columns(numbers),
        remarks=[
            *(["ImageNet was left out, as asked."] if stage.sources.imagenet == NONE else []),
            *(
                f"{p['model']} σ={p['sigma']:g} n={p['n']}: c* = "
                + ", ".join(f"{k} ({v} inputs)" for k, v in p["buckets"].items())
                + "; of all radii up to 4σ, "
                + ", ".join(f"{what} at {share:.1%}" for what, share in p["share_of_radii"].items())
                + "; duels against pairwise: larger on {larger} inputs, smaller on {smaller}, there by {less:.3f}σ on "
                "average and {most:.3f}σ at most".format(**p["duels_against_pairwise"])
                for p in numbers
            ),
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
