"""Duels against labels on the CIFAR-10 example networks: what a prediction costs, and what adaptive certificates cost.

    python benchmarks/duels.py [--data FILE] [--sigma 0.25,0.5] [--inputs 500] [--json FILE]

Predictions: `predict` by duels, which draws until the class is known, against labels with a fixed 1,000 draws.
Adaptive: is the radius at least ε, for ε = 0.25 and 0.5 alone and α = 0.001. Draws are those of both samples, over all
inputs, which are the same for both kinds of votes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from smoothcert import ABSTAIN, Duels, Labels, SmoothedClassifier
from smoothcert.data import open_data
from smoothcert.models import load_model
from smoothcert.sampling.blocks import Input

ROOT = Path(__file__).parents[1]
EPSILONS, MAX_N = (0.25, 0.5), 100_000


@dataclass(frozen=True)
class Row:
    """One kind of votes asked one question: `answered` is the share of inputs with an answer, `right` with the right
    one."""

    sigma: float
    asked: str
    votes: str
    answered: float
    right: float
    draws: float


def rows_of(sigma: float, inputs: list[Input], labels: np.ndarray, max_n: int) -> Iterator[Row]:
    """Predictions and adaptive certificates by either kind of votes."""
    weights = ROOT / "experiments" / "models" / f"cifar_small-noise{sigma:.2f}.safetensors"
    network = load_model("cifar_small", weights=weights, device="cpu")
    for votes in (Labels(), Duels()):
        smoothed = SmoothedClassifier(network, sigma=sigma, num_classes=10, votes=votes, noise="grid", seed=0)
        for eps in (None, *EPSILONS):
            before = smoothed.drawn
            if eps is None:
                classes = smoothed.predict_batch(inputs)
            else:
                classes = [c.prediction for c in smoothed.certify_batch(inputs, radii=[eps], max_n=max_n)]
            k, draws = np.array(classes), (smoothed.drawn - before) / len(inputs)
            asked = "class" if eps is None else f"radius ≥ {eps:g}"
            yield Row(sigma, asked, votes.name, float((k != ABSTAIN).mean()), float((k == labels).mean()), draws)


def main() -> None:
    """One line for each σ, question and kind of votes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=str(ROOT.parent / "shared" / "data" / "cifar10" / "test.parquet"))
    parser.add_argument("--sigma", default="0.25,0.5")
    parser.add_argument("--inputs", type=int, default=500)
    parser.add_argument("--max-n", type=int, default=MAX_N)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    data = open_data(given.data)
    examples = [data[i] for i in range(0, len(data), len(data) // given.inputs)][: given.inputs]
    inputs, labels = [Input(e.id, e.array) for e in examples], np.array([e.label for e in examples])
    print(f"{'σ':>5}  {'asked':14}  {'votes':7}  {'answered':>8}  {'right':>6}  {'draws':>8}   ({len(inputs)} inputs)")
    rows = []
    for sigma in map(float, given.sigma.split(",")):
        for r in rows_of(sigma, inputs, labels, given.max_n):
            print(
                f"{r.sigma:5g}  {r.asked:14}  {r.votes:7}  {r.answered:8.3f}  {r.right:6.3f}  {r.draws:8,.0f}",
                flush=True,
            )
            rows.append(r)
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
