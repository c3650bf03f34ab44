"""Figure 4 of the paper: what is certified with and without a Lipschitz constant, and what an attack finds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.attacks import pgd, smoothed_pgd
from smoothcert.certificate import PROVED, certify_soft_batch
from smoothcert.certification import certify_dataset
from smoothcert.classifier import SmoothedClassifier
from smoothcert.data import Dataset, digits, select
from smoothcert.experiments.reproduction import Result, Scale, Setting, canvas
from smoothcert.lipschitz import product
from smoothcert.models import load_model
from smoothcert.report.figure import COLOURS
from smoothcert.report.summary import certified_radii

PAPER = "bonferroni-bernstein"
CHUNK = 25


@dataclass(frozen=True)
class Case:
    """A Lipschitz network, what it is smoothed with, and the temperature of its soft votes."""

    name: str
    model: torch.nn.Module
    data: Dataset
    sigma: float
    temperature: float
    skip: int
    limit: int
    n: int
    attacked: int
    eps: tuple[float, ...]


def case_of(setting: Setting) -> Case:
    """The paper: trained with σ = 0.5, smoothed with 0.12."""
    if setting.scale is Scale.SMOKE:
        model = load_model("digits_lipschitz", device="cpu")
        assert isinstance(model, torch.nn.Module)
        return Case("digits_lipschitz", model, digits(train=False), 0.12, 0.2, 1, 20, 1_000, 5, (0.25, 0.5, 0.75, 1.0))
    skip, limit, attacked = (50, 200, 50) if setting.scale is Scale.CPU else (10, 1_000, 1_000)
    model = setting.network("liresnet", 0.5)
    eps = (0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
    return Case("liresnet", model, setting.cifar10(), 0.12, 1.0, skip, limit, 10_000, attacked, eps)


def gap(setting: Setting) -> Result:
    """Certified accuracy of each radius from the same soft votes, and accuracy under attack, at the same ε."""
    case = case_of(setting)
    run = certify_dataset(
        case.model,
        case.data,
        sigma=case.sigma,
        out=setting.out / f"gap-{case.name}-sigma{case.sigma:g}.smoothcert",
        n=case.n,
        votes="softmax",
        temperature=case.temperature,
        interval=PAPER,
        lipschitz="local",
        skip=case.skip,
        limit=case.limit,
        model_name=case.name,
        **setting.sampling,
        on_progress=setting.meter(case.name),
    )
    assert run.tally.soft is not None
    constant = product(case.model, case.data[0].array.shape).value
    exact = certify_soft_batch(
        *run.tally.soft,
        sigma=case.sigma,
        votes="softmax",
        interval="betting",
        lipschitz=np.full(len(run), run.plan.component_constant * constant),
        basis=PROVED,
    )
    certified = {
        "R_mult, paper": run.certificates(PAPER),
        "R_multiLip, est. L": run.certificates(PAPER, estimated=True),
        "R_mult, betting": run.certificates("betting"),
        "exact, proved L": exact,
        "hard votes, pairwise": run.certificates("pairwise"),
    }
    won = {name: certified_radii(c, run.labels) for name, c in certified.items()}
    attacks = _attacks(case, setting)
    eps = np.array(case.eps)
    rows = [(n, *(f"{(w >= e).mean():.3f}" for e in eps)) for n, w in won.items()]
    rows += [(n, *(f"{v:.3f}" for v in shares)) for n, shares in attacks.items()]
    return Result(
        title=f"{case.name}, σ = {case.sigma:g}, {len(run)} inputs: certified accuracy, and accuracy under attack",
        columns=("radius or attack", *(f"{e:g}" for e in eps)),
        rows=rows,
        numbers={
            "model": case.name,
            "sigma": case.sigma,
            "temperature": case.temperature,
            "n": case.n,
            "inputs": len(run),
            "attacked": case.attacked,
            "scores_constant_proved": constant,
            "scores_constant_local_mean": float(run.tally.constants.mean()),
            "eps": eps.tolist(),
            "certified_accuracy": {n: [float((w >= e).mean()) for e in eps] for n, w in won.items()},
            "average_radius": {n: float(w.clip(0).mean()) for n, w in won.items()},
            "accuracy_under_attack": attacks,
        },
        figure=_figure(won, attacks, eps),
        remarks=[
            "The paper's interval is Bonferroni and Bernstein; the exact radius bets on one pair.",
            "All radii are proved but R_multiLip, whose local constants are estimates.",
            f"Attacks ran on the first {case.attacked} of the inputs; they bound robust accuracy from above.",
        ],
    )


def _attacks(case: Case, setting: Setting) -> dict[str, list[float]]:
    """Accuracy under ℓ2 PGD: 40 steps of 0.2 on the network, as in the paper, and on the smoothed classifier."""
    examples = [case.data[row] for row in select(case.data, skip=case.skip, limit=case.attacked)]
    smoothed = SmoothedClassifier(case.model, sigma=case.sigma, num_classes=10, engine="torch")
    norms: dict[str, list[NDArray[np.float64]]] = {"PGD, network": [], "PGD, smoothed": []}
    for start in range(0, len(examples), CHUNK):
        chunk = examples[start : start + CHUNK]
        xs, labels = [e.array for e in chunk], [e.label for e in chunk]
        norms["PGD, network"].append(pgd(case.model, xs, labels, case.eps).norms)
        found = smoothed_pgd(smoothed, xs, labels, case.eps, draws=8, steps=10, n=200)
        norms["PGD, smoothed"].append(found.norms)
        done = start + len(chunk)
        setting.progress("attacking", done, done / len(examples), "inputs")
    whole = {name: np.concatenate(parts) for name, parts in norms.items()}
    return {name: [float((found > e).mean()) for e in case.eps] for name, found in whole.items()}


def _figure(won: dict[str, NDArray[np.float64]], attacks: dict[str, list[float]], eps: NDArray[np.float64]) -> object:
    with canvas(1, 1, width=4.6, height=3.0) as (figure, axes):
        axis, x = axes[0, 0], np.linspace(0, eps.max(), 200)
        for (name, w), colour in zip(won.items(), COLOURS, strict=False):
            y = [(w >= e).mean() for e in x]
            axis.plot(x, y, color=colour, label=name, linestyle="--" if "est." in name else "-")
        for (name, shares), marker in zip(attacks.items(), "ox", strict=True):
            axis.plot(eps, shares, marker=marker, color="#000000", linestyle=":", label=name, markersize=3)
        axis.set_xlim(0, eps.max())
        axis.set_ylim(0, 1)
        axis.set_xlabel(r"$\varepsilon$ ($\ell_2$)")
        axis.set_ylabel("accuracy")
        axis.legend(frameon=False, fontsize=6)
    return figure
