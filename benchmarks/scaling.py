"""What grows with what: draws, classes, inputs, image size; the run file, opening it, and certifying again from it.

    python benchmarks/scaling.py [--quick] [--out FILE]

Networks are tiny (a linear layer behind an average), so that what is left is what `smoothcert` does. Each line has its
own unit of cost: where it stays level, cost is linear. Votes for the last part are drawn from shares like those of
CIFAR-10 networks, without a network.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import nn

from smoothcert import Question, SmoothedClassifier, open_run
from smoothcert.bounds import METHODS
from smoothcert.plan import Classifier, Labels, Plan, Selection, Setting
from smoothcert.sampling.blocks import BLOCK, Phase, Votes
from smoothcert.sampling.identity import Identity
from smoothcert.store.file import RunFile
from smoothcert.store.schema import Info, InputRecord

SIGMA, N0, N = 0.5, 100, 10_000
Line = tuple[str, float, str]


class Tiny(nn.Module):
    """Scores of an 8×8 average of the image."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.shrink, self.layer = nn.AdaptiveAvgPool2d(8), nn.Linear(64, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layer(self.shrink(x).flatten(1))
        return scores


class Images:
    """Random 8×8 images, made when asked for."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> tuple[np.ndarray, int]:
        return np.random.default_rng(row).random((1, 8, 8), dtype=np.float32), row % 10


def classifier(num_classes: int) -> SmoothedClassifier:
    torch.manual_seed(0)
    return SmoothedClassifier(
        Tiny(num_classes), sigma=SIGMA, num_classes=num_classes, votes="labels", engine="torch", batch=400, seed=0
    )


def seconds_to_certify(smoothed: SmoothedClassifier, x: torch.Tensor, n: int) -> float:
    smoothed.certify(x, n0=N0, n=BLOCK, method="mono")
    start = perf_counter()
    smoothed.certify(x, n0=N0, n=n, method="mono")
    return perf_counter() - start


def against_n(quick: bool) -> Iterator[Line]:
    smoothed, x = classifier(10), torch.rand(1, 8, 8)
    for n in (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000):
        yield f"n = {n:,}", 1e6 * seconds_to_certify(smoothed, x, n) / (N0 + n), "µs a draw"


def against_classes(quick: bool) -> Iterator[Line]:
    x, n = torch.rand(1, 8, 8), 1_000 if quick else 10_000
    for c in (10, 1_000) if quick else (10, 100, 1_000, 21_000):
        smoothed = classifier(c)
        rows = x.repeat(400, 1, 1, 1)
        with smoothed.engine.ready():
            smoothed.engine(rows).argmax(1)
            start = perf_counter()
            for _ in range(n // 400):
                smoothed.engine(rows).argmax(1)
            bare = (perf_counter() - start) / (n // 400 * 400)
        cost = seconds_to_certify(smoothed, x, n) / (N0 + n)
        yield f"classes = {c:,}", 1e6 * cost, f"µs a draw, the forward pass {1e6 * bare:.1f}"


def against_image_size(quick: bool) -> Iterator[Line]:
    smoothed = classifier(10)
    for side in (8, 32) if quick else (8, 32, 64, 128, 224):
        x, n = torch.rand(1, side, side), max(100_000 * 64 // side**2, 1_000) // (10 if quick else 1)
        cost = seconds_to_certify(smoothed, x, max(n, BLOCK)) / (N0 + max(n, BLOCK))
        yield f"image of {side} × {side}", 1e9 * cost / side**2, "ns a pixel and draw"


def against_inputs(quick: bool, folder: Path) -> Iterator[Line]:
    smoothed = classifier(10)
    for count in (100, 1_000) if quick else (100, 1_000, 10_000, 100_000):
        path = folder / f"{count}.smoothcert"
        start = perf_counter()
        smoothed.certify_dataset(Images(count), out=path, n0=BLOCK, n=BLOCK, images=False)
        yield f"inputs = {count:,}", 1e3 * (perf_counter() - start) / count, "ms an input of 200 draws"
        yield from opened(path)


def opened(path: Path) -> Iterator[Line]:
    start = perf_counter()
    run = open_run(path)
    yield f"  open, {path.stat().st_size / 2**20:.1f} MiB", perf_counter() - start, "s"
    start = perf_counter()
    yield f"  read the votes of {len(run):,}", perf_counter() - start, "s"


def made_up(path: Path, inputs: int, num_classes: int) -> None:
    """A run file with votes from shares like those of CIFAR-10 networks under noise."""
    rng = np.random.default_rng(0)
    p1 = rng.beta(2.0, 0.7, inputs)
    p = np.column_stack([p1, (1 - p1)[:, None] * rng.dirichlet(np.full(num_classes - 1, 5 / num_classes), inputs)])
    smoothed = Classifier(sigma=SIGMA, num_classes=num_classes, votes=Labels(), model="none")
    plan = Plan(
        smoothed,
        Question.of(n0=N0, n=N).about(smoothed),
        Setting(Identity("none", "none", "cpu"), 400, seed=0),
        Selection(data="none", total=inputs),
    )
    with RunFile.open_to_write(path) as file:
        file.declare(plan, Info("", "", "none", "none", None))
        for i, shares in enumerate(p / p.sum(axis=1, keepdims=True)):
            file.add_input(InputRecord(i, str(i), 0), None)
            for phase, draws in ((Phase.SELECTION, N0), (Phase.ESTIMATION, N)):
                counts = rng.multinomial(draws, shares)
                classes = counts.nonzero()[0]
                file.add_votes(Votes(i, phase, 0, draws // BLOCK, draws, classes, counts[classes], 0.0))
        file.commit()


def certified_again(quick: bool, folder: Path) -> Iterator[Line]:
    for inputs, c in ((100, 10),) if quick else ((10_000, 10), (10_000, 1_000)):
        path = folder / f"{inputs}-{c}.smoothcert"
        made_up(path, inputs, c)
        yield f"run of {inputs:,} inputs, {c:,} classes", path.stat().st_size / 2**20, "MiB"
        yield from opened(path)
        run = open_run(path)
        len(run)
        for method in METHODS:
            start = perf_counter()
            run.certificates(method)
            yield f"  recertify {method}", perf_counter() - start, "s"
    path = folder / "many.smoothcert"
    made_up(path, 1_000 if quick else 100_000, 10)
    yield from opened(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--out", type=Path, help="write the numbers here, as JSON")
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for part in (
            against_n(options.quick),
            against_classes(options.quick),
            against_image_size(options.quick),
            against_inputs(options.quick, Path(folder)),
            certified_again(options.quick, Path(folder)),
        ):
            group = ""
            for name, value, unit in part:
                group = group if name.startswith(" ") else name
                print(f"{name:40} {value:10.3f} {unit}", flush=True)
                results[group if name == group else f"{group}: {name.strip()}"] = {"value": value, "unit": unit}
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
