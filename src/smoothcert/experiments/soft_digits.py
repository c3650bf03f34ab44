"""What a proved Lipschitz constant adds: the table of docs/lipschitz.md, every row that has draws from the same ones.

python -m smoothcert.experiments.soft_digits
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from smoothcert.certificate import Certificate
from smoothcert.certification.widths import promised
from smoothcert.classifier import SmoothedClassifier
from smoothcert.data import Example, digits, select
from smoothcert.experiments.drawn_scores import DrawnScores, draw_scores
from smoothcert.experiments.reproduction import SEED, digits_network
from smoothcert.lipschitz.constant import steepness
from smoothcert.lipschitz_classifier import LipschitzClassifier
from smoothcert.plan import Duels, Labels, Margins, Question, Slopes, Softmax
from smoothcert.sampling.blocks import Input
from smoothcert.summary import summarise

SIGMA, LIMIT, N0, N = 0.25, 100, 100, 10_000
RADII = np.array([0.2, 0.3, 0.4, 0.5, 0.6])
TEMPERATURES = (0.1, 0.2)
PAPER = "bonferroni-bernstein"


def rows(network: torch.nn.Module, examples: list[Example]) -> Iterator[tuple[str, str, list[Certificate]]]:
    """Temperature, name and certificates: of soft votes, then other ways to certify the same network."""
    smoothed = SmoothedClassifier(
        network, sigma=SIGMA, num_classes=10, votes=Duels(), engine="torch", batch=400, seed=SEED
    )
    drawn = draw_scores(smoothed, [Input(e.id, e.array) for e in examples], N0, N)
    scores, asked = DrawnScores(drawn[:, :N0], drawn[:, N0:]), partial(Question.of, n0=N0, n=N)
    proved = steepness(network, examples[0].array.shape)
    slopes, known = Slopes(np.full(len(examples), proved.scores), proved.pairs), proved.scores
    for temperature in TEMPERATURES:
        certify = partial(scores.certify, dataclasses.replace(smoothed.classifier, votes=Softmax(temperature)))
        shown = f"{temperature:g}"
        for method in (PAPER, "betting"):
            yield shown, f"`{method}`, R_mult", certify(asked(method=method))
        yield shown, f"`{PAPER}`, R_multiLip", certify(asked(method=PAPER, lipschitz=known), slopes)
        yield shown, "`betting`, exact", certify(asked(method="betting", lipschitz=known), slopes)
    average = promised(list(scores.selection.astype(np.float64)), N, Question.alpha, SIGMA, slopes)
    width = max(average, key=average.__getitem__)
    by_margins = dataclasses.replace(smoothed.classifier, votes=Margins(width))
    yield "", f"margins over {width:g}", scores.certify(by_margins, asked(lipschitz=known), slopes)
    for votes in (Labels(), Duels()):
        classifier = dataclasses.replace(smoothed.classifier, votes=votes)
        yield "", f"{votes.name}, `{votes.default_method}`", scores.certify(classifier, asked())
    bare = LipschitzClassifier(network, input_shape=(1, 8, 8), num_classes=10)
    yield "", "no noise", bare.certify_batch([e.array for e in examples])


def main() -> None:
    data = digits(train=False)
    examples = [data[row] for row in select(data, limit=LIMIT)]
    heads = [*(f"r = {r:g}" for r in RADII), "average radius"]
    print(f"| T | L | certificate | {' | '.join(heads)} |")
    print("|---" * (3 + len(heads)) + "|")
    for temperature, name, certificates in rows(digits_network("digits_lipschitz"), examples):
        s = summarise(certificates, [e.label for e in examples], RADII)
        constant = "" if certificates[0].lipschitz is None else f"{certificates[0].lipschitz:.3g}"
        cells = [*(f"{share:.2f}" for share in s.certified), f"{s.average_radius:.3f}"]
        print(f"| {temperature} | {constant} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
