"""Figure 4 of the paper: what is certified with and without a Lipschitz constant, and what an attack finds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.attacks import pgd, smoothed_pgd
from smoothcert.certificate import certificates
from smoothcert.classifier import SmoothedClassifier
from smoothcert.data import Dataset, Example, digits, select
from smoothcert.experiments.reproduction import (
    COLUMN,
    SEED,
    Part,
    Result,
    Scale,
    Stage,
    canvas,
    digits_network,
    draws_of,
)
from smoothcert.experiments.sources import together
from smoothcert.lipschitz.constant import steepness
from smoothcert.plan import Question, Slopes, Softmax
from smoothcert.report.figure import COLOURS
from smoothcert.summary import certified_radii

PAPER = "bonferroni-bernstein"
SIGMA, TRAINED = 0.12, 0.5
"""The noise that networks are smoothed with, and that of their training, as in the paper."""

PGD_STEPS, SMOOTHED_STEPS, SMOOTHED_DRAWS, JUDGED = 40, 10, 8, 200
CHUNK = 25


@dataclass(frozen=True)
class Defence:
    """A Lipschitz network, its votes, the inputs that are certified, and those that are attacked at each ε."""

    name: str
    model: torch.nn.Module
    data: Dataset
    votes: Softmax
    skip: int
    limit: int
    n: int
    attacked: int
    eps: tuple[float, ...]


def defence_of(stage: Stage) -> Defence:
    """What is certified and attacked at each scale."""
    if stage.scale is Scale.SMOKE:
        name, few = "digits_lipschitz", (0.25, 0.5, 0.75, 1.0)
        return Defence(name, digits_network(name), digits(train=False), Softmax(0.2), 1, 20, 1_000, 5, few)
    skip, limit, attacked = (50, 200, 50) if stage.scale is Scale.CPU else (10, 1_000, 1_000)
    model, data = together(partial(stage.network, "liresnet", TRAINED), stage.cifar10)
    limit, attacked, n = stage.size.inputs(limit), stage.size.inputs(attacked), stage.size.draws(10_000)
    eps = (0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
    return Defence("liresnet", model, data, Softmax(1.0), skip, limit, n, attacked, eps)


def gap_parts(stage: Stage) -> list[Part]:
    """The draws, and the attacks in draws: a gradient takes about three."""
    defence = defence_of(stage)
    smoothed = stage.smoothed(defence.model, defence.data, SIGMA, defence.votes)
    attack = len(defence.eps) * (3 * PGD_STEPS + 3 * SMOOTHED_DRAWS * SMOOTHED_STEPS + JUDGED)
    units = defence.limit * defence.n + defence.attacked * attack
    return [draws_of(defence.name, units, smoothed, defence.data)]


def gap(stage: Stage) -> Result:
    """Certified accuracy of each radius from the same soft votes, and accuracy under attack, at the same ε."""
    defence = defence_of(stage)
    smoothed = stage.smoothed(defence.model, defence.data, SIGMA, defence.votes)
    run = smoothed.certify_dataset(
        defence.data,
        out=stage.out / f"gap-{defence.name}-sigma{SIGMA:g}.smoothcert",
        n0=stage.size.draws(100),
        n=defence.n,
        method=PAPER,
        lipschitz="local",
        skip=defence.skip,
        limit=defence.limit,
        model_name=defence.name,
        on_progress=stage.meter(defence.name),
    )
    proved = steepness(defence.model, defence.data[0].array.shape)
    asked = Question.of(n=defence.n, method="betting", lipschitz=proved.scores)
    slopes = Slopes(np.full(len(run), proved.scores), proved.pairs)
    exact = certificates(smoothed.classifier, asked, run.tally, slopes=slopes)
    certified = {
        "R_mult, paper": run.certificates(PAPER),
        "R_multiLip, est. L": run.certificates(PAPER, estimated=True),
        "R_mult, betting": run.certificates("betting"),
        "exact, proved L": exact,
        "hard votes, pairwise": run.certificates("pairwise"),
    }
    won = {name: certified_radii(c, run.labels) for name, c in certified.items()}
    attacks = _attacks(defence, stage)
    eps = np.array(defence.eps)
    rows = [(n, *(f"{(w >= e).mean():.3f}" for e in eps)) for n, w in won.items()]
    rows += [(n, *(f"{v:.3f}" for v in shares)) for n, shares in attacks.items()]
    return Result(
        title=f"{defence.name}, σ = {SIGMA:g}, {len(run)} inputs: certified accuracy, and accuracy under attack",
        columns=("radius or attack", *(f"{e:g}" for e in eps)),
        rows=rows,
        numbers={
            "model": defence.name,
            "sigma": SIGMA,
            "temperature": defence.votes.temperature,
            "n": defence.n,
            "inputs": len(run),
            "attacked": defence.attacked,
            "scores_constant_proved": proved.scores,
            "scores_constant_local_mean": float(run.constants.mean()),
            "eps": eps.tolist(),
            "certified_accuracy": {n: [float((w >= e).mean()) for e in eps] for n, w in won.items()},
            "average_radius": {n: float(w.clip(0).mean()) for n, w in won.items()},
            "accuracy_under_attack": attacks,
        },
        figure=_figure(won, attacks, eps, width=4.6),
        pdfs={"gap": _figure(won, attacks, eps, width=COLUMN)},
        remarks=[
            "The paper's interval is Bonferroni and Bernstein; the exact radius bets on one pair.",
            "All radii are proved but R_multiLip, whose local constants are estimates.",
            f"Attacks ran on the first {defence.attacked} of the inputs; they bound robust accuracy from above.",
        ],
    )


def _attacks(defence: Defence, stage: Stage) -> dict[str, list[float]]:
    """Accuracy under ℓ2 PGD: 40 steps of 0.2 on the network, as in the paper, and on the smoothed classifier."""
    examples = [defence.data[row] for row in select(defence.data, skip=defence.skip, limit=defence.attacked)]
    smoothed = SmoothedClassifier(defence.model, sigma=SIGMA, num_classes=10, engine="torch", seed=SEED)
    norms: dict[str, list[float]] = {"PGD, network": [], "PGD, smoothed": []}

    def attack(chunk: list[Example]) -> dict[str, list[float]]:
        xs, labels = [e.array for e in chunk], [e.label for e in chunk]
        network = pgd(defence.model, xs, labels, defence.eps, steps=PGD_STEPS)
        whole = smoothed_pgd(smoothed, xs, labels, defence.eps, draws=SMOOTHED_DRAWS, steps=SMOOTHED_STEPS, n=JUDGED)
        return {"PGD, network": network.norms.tolist(), "PGD, smoothed": whole.norms.tolist()}

    for start in range(0, len(examples), CHUNK):
        chunk = examples[start : start + CHUNK]
        part = f"gap-attacks-{defence.name}-{SIGMA:g}-skip{defence.skip}-{start}-{len(chunk)}"
        for name, found in stage.kept(part, defence.model, partial(attack, chunk)).items():
            norms[name] += found
        done = start + len(chunk)
        stage.progress("attacking", done, done / len(examples), "inputs")
    return {name: [float((np.array(found) > e).mean()) for e in defence.eps] for name, found in norms.items()}


def _figure(
    won: dict[str, NDArray[np.float64]], attacks: dict[str, list[float]], eps: NDArray[np.float64], width: float
) -> object:
    with canvas(1, 1, width=width, height=3.0) as (figure, axes):
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
