"""Figure 4 of the paper: what is certified with and without a Lipschitz constant, and what an attack finds."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.attacks import pgd, smoothed_pgd
from smoothcert.certificate import ESTIMATED, PROVED, Certificate
from smoothcert.certification.widths import promised
from smoothcert.classifier import SmoothedClassifier
from smoothcert.data import Dataset, digits, select
from smoothcert.experiments.drawn_scores import DrawnScores, draw_scores
from smoothcert.experiments.gap_figure import gap_figure
from smoothcert.experiments.reproduction import (
    COLUMN,
    SEED,
    Part,
    Result,
    Scale,
    Sheet,
    Stage,
    digits_network,
    draws_of,
)
from smoothcert.experiments.sources import together
from smoothcert.lipschitz.constant import Steepness, local_constants, steepness
from smoothcert.lipschitz_classifier import LipschitzClassifier
from smoothcert.plan import Duels, Labels, Margins, Question, Slopes, Softmax
from smoothcert.sampling.blocks import Input
from smoothcert.summary import certified_radii

PAPER = "bonferroni-bernstein"
SIGMA, STEEP = 0.12, 4.0
"""The noise that networks are smoothed with, and the constant of the shares, as in the paper."""

TEMPERATURES = (1.0, 0.3, 0.1, 0.01)
"""Those of the table, beside the one at which the shares have the paper's constant."""

Votes = Duels | Labels | Margins
NO_NOISE = "no noise"
PGD_STEPS, SMOOTHED_STEPS, SMOOTHED_DRAWS, JUDGED = 40, 10, 8, 200
LOCAL = 2 * 5 * 41
"""Gradients that a local constant takes: of two classes, from five starts."""

CHUNK = 10
Radii = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Defence:
    """A Lipschitz network, the inputs that are certified and attacked, how often each is drawn, and at which ε."""

    name: str
    model: torch.nn.Module
    data: Dataset
    skip: int
    limit: int
    n0: int
    n: int
    eps: tuple[float, ...]

    @cached_property
    def proved(self) -> Steepness:
        return steepness(self.model, self.data[0].array.shape)

    def slopes(self, inputs: int) -> Slopes:
        """What is proved, for so many inputs."""
        return Slopes(np.full(inputs, self.proved.scores), self.proved.pairs)

    @property
    def usual(self) -> float:
        """The temperature T at which `L(F) = max_kj K_kj / 4T`, proved, is the paper's."""
        return float(self.proved.pairs.max()) / (4 * STEEP)

    @property
    def temperatures(self) -> list[float]:
        return sorted({*TEMPERATURES, self.usual}, reverse=True)


def defence_of(stage: Stage) -> Defence:
    """What is certified and attacked at each scale; the paper's network was trained with σ = 0.5."""
    if stage.scale is Scale.SMOKE:
        name, few = "digits_lipschitz", (0.25, 0.5, 0.75, 1.0)
        return Defence(name, digits_network(name), digits(train=False), 1, 20, 100, 1_000, few)
    skip, limit, trained = (100, 100, 0.0) if stage.scale is Scale.CPU else (10, 1_000, 0.5)
    model, data = together(partial(stage.network, "liresnet", trained), stage.cifar10)
    n0, n = stage.size.draws(100), stage.size.draws(10_000)
    eps = (0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
    return Defence("liresnet", model, data, skip, stage.size.inputs(limit), n0, n, eps)


def gap_parts(stage: Stage) -> list[Part]:
    """The draws, and the searches in draws: a gradient takes about three."""
    defence = defence_of(stage)
    smoothed = stage.smoothed(defence.model, defence.data, SIGMA, Duels())
    attack = len(defence.eps) * (3 * PGD_STEPS + 3 * SMOOTHED_DRAWS * SMOOTHED_STEPS + JUDGED)
    units = defence.limit * (defence.n0 + defence.n + attack + 3 * LOCAL * (1 + len(TEMPERATURES)))
    return [draws_of(defence.name, units, smoothed, defence.data)]


def gap(stage: Stage) -> Result:
    """Certified accuracy of every certificate from the same scores, and accuracy under attack, at the same ε."""
    defence = defence_of(stage)
    trial = _Trial(defence, stage, stage.smoothed(defence.model, defence.data, SIGMA, Duels()))
    rows = select(defence.data, skip=defence.skip, limit=defence.limit)
    chunks = [_Chunk(defence.data, rows[start : start + CHUNK]) for start in range(0, len(rows), CHUNK)]
    votes = trial.votes(chunks)
    certified: defaultdict[str, list[Certificate]] = defaultdict(list)
    norms: defaultdict[str, list[float]] = defaultdict(list)
    for done, chunk in enumerate(chunks, 1):
        for name, found in trial.certified(chunk, votes).items():
            certified[name] += found
        for name, lengths in trial.kept(chunk, "attacks", partial(_attacks, defence, chunk)).items():
            norms[name] += lengths
        stage.progress("certified and attacked", min(done * CHUNK, len(rows)), done / len(chunks), "inputs")
    labels = [label for chunk in chunks for label in chunk.labels]
    won = {name: certified_radii(found, labels) for name, found in certified.items()}
    return _result(defence, won, {name: np.array(found) for name, found in norms.items()}, certified, votes)


@dataclass(frozen=True)
class _Chunk:
    """Inputs of which all is computed, and then kept."""

    data: Dataset
    rows: range

    @cached_property
    def inputs(self) -> list[Input]:
        return [Input(e.id, e.array) for e in map(self.data.__getitem__, self.rows)]

    @cached_property
    def labels(self) -> list[int]:
        return [self.data[row].label for row in self.rows]

    @property
    def arrays(self) -> list[NDArray[np.float32]]:
        return [source.array for source in self.inputs]


@dataclass(frozen=True)
class _Trial:
    """A defence on its stage."""

    defence: Defence
    stage: Stage
    smoothed: SmoothedClassifier

    @cached_property
    def bare(self) -> LipschitzClassifier:
        shape = self.defence.data.shape
        return LipschitzClassifier(self.defence.model, input_shape=shape, num_classes=self.smoothed.num_classes)

    def kept(self, chunk: _Chunk, what: str, compute: Callable[[], Any]) -> Any:
        return self.stage.kept(f"{self._part(chunk)}-{what}", self.defence.model, compute)

    def _part(self, chunk: _Chunk) -> str:
        return f"gap-{self.defence.name}-{SIGMA:g}-{chunk.rows.start}-{chunk.rows.stop}-{chunk.rows.step}"

    def scores(self, chunk: _Chunk) -> DrawnScores:
        """The scores of all draws."""
        n0, n, model = self.defence.n0, self.defence.n, self.defence.model
        draw = partial(draw_scores, self.smoothed, chunk.inputs, n0, n)
        drawn = self.stage.kept_array(f"{self._part(chunk)}-{n0}-{n}-scores", model, draw)
        return DrawnScores(drawn[:, :n0], drawn[:, n0:])

    def votes(self, chunks: Sequence[_Chunk]) -> dict[str, Votes]:
        """Other votes than shares, each of a classifier of its own. The width of margins is chosen on the selection
        draws of all inputs, which prove nothing."""
        seen: list[NDArray[np.float64]] = []
        for done, chunk in enumerate(chunks, 1):
            seen += list(self.scores(chunk).selection.astype(np.float64))
            self.stage.progress("drawn", len(seen), done / len(chunks), "inputs")
        average = promised(seen, self.defence.n, Question.alpha, SIGMA, self.defence.slopes(1))
        width = max(average, key=average.__getitem__)
        return {f"margins, w = {width:g}": Margins(width), "duels": Duels(), "labels, pairwise": Labels()}

    def certified(self, chunk: _Chunk, votes: Mapping[str, Votes]) -> dict[str, list[Certificate]]:
        """Every certificate of some inputs, by name."""
        defence, smoothed, scores = self.defence, self.smoothed, self.scores(chunk)
        asked, proved = partial(Question.of, n0=defence.n0, n=defence.n), defence.slopes(len(chunk.inputs))
        found = {NO_NOISE: self.bare.certify_batch(chunk.inputs)}
        for name, kind in votes.items():
            known = None if kind.jumps else defence.proved.scores
            classifier = dataclasses.replace(smoothed.classifier, votes=kind)
            found[name] = scores.certify(classifier, asked(lipschitz=known), None if kind.jumps else proved)
        for temperature in defence.temperatures:
            classifier = dataclasses.replace(smoothed.classifier, votes=Softmax(temperature))
            search = partial(_local, defence.model, chunk.arrays, Softmax(temperature))
            near = Slopes(np.array(self.kept(chunk, f"local-{temperature:.6g}", search)), of_shares=True)
            of = partial(_of, temperature=temperature)
            found[of("exact")] = scores.certify(classifier, asked(lipschitz=defence.proved.scores), proved)
            found[of("R_mult")] = scores.certify(classifier, asked(method=PAPER))
            question = asked(method=PAPER, lipschitz=defence.proved.scores)
            found[of("R_multiLip, proved")] = scores.certify(classifier, question, proved)
            question = asked(method=PAPER, lipschitz="local")
            found[of("R_multiLip")] = scores.certify(classifier, question, near, ESTIMATED)
        return found


def _local(model: torch.nn.Module, arrays: Sequence[NDArray[np.float32]], votes: Softmax) -> list[float]:
    """The local constants of the shares."""
    return [float(value) for value in local_constants(model, arrays, votes.shares)]


def _of(radius: str, temperature: float) -> str:
    return f"{radius}, T = {temperature:.2g}"


def _attacks(defence: Defence, chunk: _Chunk) -> dict[str, list[float]]:
    """The smallest norms that ℓ2 PGD needed: 40 steps of 0.2 on the network, as in the paper, and on the classifier
    that is smoothed by duels."""
    xs, labels = chunk.arrays, chunk.labels
    smoothed = SmoothedClassifier(defence.model, sigma=SIGMA, num_classes=10, votes=Duels(), engine="torch", seed=SEED)
    network = pgd(defence.model, xs, labels, defence.eps, steps=PGD_STEPS)
    whole = smoothed_pgd(smoothed, xs, labels, defence.eps, draws=SMOOTHED_DRAWS, steps=SMOOTHED_STEPS, n=JUDGED)
    return {"PGD, network": network.norms.tolist(), "PGD, duels": whole.norms.tolist()}


def _result(
    defence: Defence,
    won: Radii,
    norms: Radii,
    certified: Mapping[str, Sequence[Certificate]],
    votes: Mapping[str, Votes],
) -> Result:
    eps, usual = np.array([0.0, *defence.eps]), defence.usual
    bases = {name: found[0].basis for name, found in certified.items()}
    most = {PROVED: np.inf, ESTIMATED: eps[-1]}
    average = {name: float(radii.clip(0, most[bases[name]]).mean()) for name, radii in won.items()}
    shown = [NO_NOISE, *votes, _of("exact", usual)]
    shown += [_of(radius, t) for t in (usual, 1.0) for radius in ("R_mult", "R_multiLip")]
    mark = {PROVED: "", ESTIMATED: " (est.)"}
    lines = {f"{name}{mark[bases[name]]}": won[name] for name in shown}
    attacks = {name: [float((found > e).mean()) for e in eps] for name, found in norms.items()}
    lipschitz = [name for name in won if bases[name] == PROVED and certified[name][0].question.lipschitz is not None]
    best = max(lipschitz, key=average.__getitem__)
    ratio = average[best] / average["duels"] if average["duels"] else None
    rows = [
        (line, f"{average[name]:.4f}", *(f"{100 * (w >= e).mean():.0f}" for e in eps))
        for name, (line, w) in zip(shown, lines.items(), strict=True)
    ]
    rows += [(name, "", *(f"{100 * v:.0f}" for v in shares)) for name, shares in attacks.items()]
    by_temperature = [_at(t, average, certified) for t in defence.temperatures]
    figure = partial(gap_figure, lines, norms, eps[-1])
    return Result(
        title=f"{defence.name}, σ = {SIGMA:g}, {len(won[best])} inputs: average radius, and % right at ε",
        columns=("certificate or attack", "radius", *(f"{e:g}" for e in eps)),
        rows=rows,
        numbers={
            "model": defence.name,
            "sigma": SIGMA,
            "n": defence.n,
            "inputs": len(won[best]),
            "scores_constant_proved": defence.proved.scores,
            "eps": eps.tolist(),
            "certified_accuracy": {name: [float((w >= e).mean()) for e in eps] for name, w in won.items()},
            "average_radius": average,
            "accuracy_under_attack": attacks,
            "temperatures": by_temperature,
            "best_proved_lipschitz": best,
            "best_over_duels": ratio,
        },
        figure=figure(width=4.6),
        pdfs={"gap": figure(width=COLUMN)},
        beside=[
            Sheet(
                "Average radius by temperature, all from the same scores",
                ("T", "L proved", "L local", "R_mult", "R_multiLip, proved L", "local L (est.)", "exact"),
                [(f"{row['T']:.3g}", *(f"{v:.4f}" for v in list(row.values())[1:])) for row in by_temperature],
            )
        ],
        remarks=[
            f"Best proved Lipschitz certificate: {best}, {average[best]:.4f} on average"
            + (f", {ratio:.2f} times duels." if ratio else "."),
            "R_mult and R_multiLip have the paper's interval, Bonferroni and Bernstein; the exact radius bets on one "
            "pair and rests on the proved constants.",
            "R_multiLip is an estimate: its constants are those found within 0.15 of an input. In averages its radii "
            f"above {eps[-1]:g} count as {eps[-1]:g}. All else is proved.",
            "All inputs were attacked. Attacks bound robust accuracy from above; the smoothed classifier that was "
            f"attacked votes by duels, {JUDGED} at most, and is counted as wrong where it abstains.",
        ],
    )


def _at(
    temperature: float, average: Mapping[str, float], certified: Mapping[str, Sequence[Certificate]]
) -> dict[str, float]:
    """A row of the table: constants of the shares, and average radii."""
    names = {radius: _of(radius, temperature) for radius in ("R_mult", "R_multiLip, proved", "R_multiLip", "exact")}
    exact, near = ([c.lipschitz or np.inf for c in certified[names[radius]]] for radius in ("exact", "R_multiLip"))
    constants = {
        "T": temperature,
        "share_constant_proved": max(exact),
        "share_constant_local_mean": float(np.mean(near)),
    }
    return {**constants, **{radius: average[name] for radius, name in names.items()}}
