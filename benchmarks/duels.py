"""Duels against labels on the CIFAR-10 example networks: what a prediction costs, and what adaptive certificates cost.

    python benchmarks/duels.py [--data FILE] [--sigma 0.25,0.5] [--inputs 250] [--ask class,0.25,0.5] [--out FOLDER]

class: `predict` by duels, which draws until the class is known, against labels with a fixed 1,000 draws, on images of
the second half of the test set. 0.25, 0.5: is the radius at least that, certified adaptively at α = 0.001, on images of
the whole set. Draws are those of both samples, over all inputs, which are the same for both kinds of votes. What was
done is kept in the folder: the same command goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from smoothcert import ABSTAIN, Duels, Labels, SmoothedClassifier
from smoothcert.data import Dataset, open_data
from smoothcert.models import load_model
from smoothcert.sampling.blocks import Input

ROOT = Path(__file__).parents[1]
CLASS = "class"


@dataclass(frozen=True)
class Row:
    """`answered` is the share of inputs with an answer, `right` with the right one."""

    answered: float
    right: float
    draws: float


def predicted(smoothed: SmoothedClassifier, data: Dataset, inputs: int) -> Row:
    """The class of inputs of the second half, or an abstention."""
    half = len(data) // 2
    examples = [data[i] for i in range(half, len(data), half // inputs)][:inputs]
    classes = np.array(smoothed.predict_batch([Input(e.id, e.array) for e in examples]))
    right = classes == [e.label for e in examples]
    return Row(float((classes != ABSTAIN).mean()), float(right.mean()), smoothed.drawn / inputs)


def certified(smoothed: SmoothedClassifier, data: Dataset, inputs: int, eps: float, max_n: int, run_file: Path) -> Row:
    """Is the radius at least eps?"""
    run = smoothed.certify_dataset(
        data, out=run_file, radii=[eps], max_n=max_n, skip=len(data) // inputs, limit=inputs, images=False
    )
    classes = np.array([c.prediction for c in run.certificates()])
    draws = sum(c.n0 + c.n for c in run.certificates()) / inputs
    return Row(float((classes != ABSTAIN).mean()), float((classes == np.array(run.labels)).mean()), draws)


def main() -> None:
    """One line for each σ, question and kind of votes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=str(ROOT.parent / "shared" / "data" / "cifar10" / "test.parquet"))
    parser.add_argument("--sigma", default="0.25,0.5")
    parser.add_argument("--inputs", type=int, default=250)
    parser.add_argument("--ask", default=f"{CLASS},0.25,0.5")
    parser.add_argument("--max-n", type=int, default=100_000, help="draws of a certificate at most")
    parser.add_argument("--out", type=Path, default=Path("duels"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    data = open_data(given.data)
    print(f"{'σ':>5}  {'asked':13}  {'votes':7} {'answered':>8}  {'right':>6}  {'draws':>8}   ({given.inputs} inputs)")
    for sigma in map(float, given.sigma.split(",")):
        weights = ROOT / "experiments" / "models" / f"cifar_small-noise{sigma:.2f}.safetensors"
        network = load_model("cifar_small", weights=weights, device="cpu")
        of_network = hashlib.sha256(weights.read_bytes()).hexdigest()[:8]
        for asked in given.ask.split(","):
            for votes in (Labels(), Duels()):
                kept = given.out / f"{asked}-{votes.name}-sigma{sigma:g}-{given.inputs}-{given.max_n}-{of_network}.json"
                if not kept.exists():
                    smoothed = SmoothedClassifier(
                        network, sigma=sigma, num_classes=10, votes=votes, noise="grid", seed=0
                    )
                    row = (
                        predicted(smoothed, data, given.inputs)
                        if asked == CLASS
                        else certified(
                            smoothed, data, given.inputs, float(asked), given.max_n, kept.with_suffix(".smoothcert")
                        )
                    )
                    kept.write_text(json.dumps(asdict(row)))
                r = Row(**json.loads(kept.read_text()))
                question = asked if asked == CLASS else f"radius ≥ {asked}"
                print(
                    f"{sigma:5g}  {question:13}  {votes.name:7} {r.answered:8.3f}  {r.right:6.3f}  {r.draws:8,.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
