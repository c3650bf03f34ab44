"""What integers buy: `onnx+int8` against `onnx`, and what becomes of labels and certificates.

    python benchmarks/int8.py [--data test.parquet] [--images 500] [--rounds 7] [--quick] [--out FILE]

cifar_small, trained with noise of 0.25, and EfficientNet-Lite0 at 224 × 224 under noise of 0.1. Both engines run in
lanes, each at the batch that suits it, in turns; the ratio is the median of those of each round. Labels are those of
noisy copies, by both engines. cifar_small also certifies every k-th image of the test set by both, n = 500, and is
calibrated on others: told is by how much the certified accuracy falls, at the radius where it falls most.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert import InputError, SmoothedClassifier
from smoothcert.certification.quantising import quantise_once
from smoothcert.data import open_data
from smoothcert.experiments.many_classes import efficientnet_lite0, imagenet_pictures
from smoothcert.models import load_model
from smoothcert.plan import Setting
from smoothcert.sampling.batches import choose_batch
from smoothcert.sampling.engines import INT8, Engine, Engines
from smoothcert.sampling.engines.agreement import count_differences
from targets import told

ROOT = Path(__file__).parents[1]
WEIGHTS = ROOT / "experiments" / "models" / "cifar_small-noise0.25.safetensors"
RADII = (0.0, 0.25, 0.5, 0.75)
Inputs = Sequence[NDArray[np.float32]]


def rate(engine: Engine, rows: torch.Tensor, seconds: float) -> float:
    """Draws a second in all lanes at once."""

    def passes(_: int) -> int:
        done, start = 0, perf_counter()
        while perf_counter() - start < seconds:
            engine(rows)
            done += len(rows)
        return done

    start = perf_counter()
    with engine.ready(), ThreadPoolExecutor(engine.lanes) as pool:
        done = sum(pool.map(passes, range(engine.lanes)))
    return done / (perf_counter() - start)


def compare(engines: Engines, xs: Inputs, sigma: float, rounds: int, draws: int) -> dict[str, float]:
    """Rates of both engines and their ratio, and the share of equal labels."""
    both = [engines.open("onnx"), engines.open(INT8)]
    rows = []
    for engine in both:
        batch = choose_batch("auto", engine, xs[0])
        rows.append(torch.from_numpy(xs[0]) + sigma * torch.randn(batch, *xs[0].shape))
    rates = [[rate(e, r, 0.5) for e, r in zip(both, rows, strict=True)] for _ in range(rounds)]
    differ = count_differences(both[1], both[0], xs, sigma=sigma, batch=100, draws=draws)
    return {
        "onnx draws/s": statistics.median(r[0] for r in rates),
        "onnx+int8 draws/s": statistics.median(r[1] for r in rates),
        "ratio": statistics.median(r[1] / r[0] for r in rates),
        "share of equal labels": 1 - differ / draws,
    }


def certified_accuracies(engines: Engines, data: str, skip: int, limit: int) -> dict[str, list[float]]:
    """Certified accuracy at each of the radii, by engine, from the same noise."""
    found = {}
    for name in ("onnx", INT8):
        smoothed = SmoothedClassifier(engines, sigma=0.25, num_classes=10, noise="grid", engine=name, seed=0)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run.smoothcert"
            run = smoothed.certify_dataset(open_data(data), n=500, skip=skip, limit=limit, images=False, out=out)
            certificates = run.certificates()
        right = np.array([c.prediction for c in certificates]) == run.labels
        radii = np.array([c.radius for c in certificates])
        found[name] = [float((right & (radii > r)).mean()) for r in RADII]
    return found


def cifar_small(data: str, images: int, rounds: int) -> dict[str, object]:
    model = load_model("cifar_small", weights=WEIGHTS, num_classes=10, device="cpu")
    dataset, engines = open_data(data), Engines(model)
    skip = max(2, len(dataset) // images)
    others = [dataset[row].array for row in range(1, len(dataset), skip)[:100]]
    quantise_once(engines, Setting(engine=INT8), 0.25, lambda: others)
    result: dict[str, object] = {**compare(engines, others, 0.25, rounds, draws=5_000)}
    accuracies = certified_accuracies(engines, data, skip, images)
    pairs = zip(accuracies["onnx"], accuracies[INT8], strict=True)
    return {**result, "accuracies": accuracies, "points lost": 100 * max(before - now for before, now in pairs)}


def efficientnet(rounds: int, draws: int) -> dict[str, float]:
    pictures, engines = imagenet_pictures(), Engines(efficientnet_lite0())
    xs = [pictures[row].array for row in range(len(pictures))]
    quantise_once(engines, Setting(engine=INT8), 0.1, lambda: xs)
    return compare(engines, xs, 0.1, rounds, draws)


def main() -> None:
    logging.getLogger("smoothcert").addHandler(logging.StreamHandler())
    logging.getLogger("smoothcert").setLevel(logging.INFO)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=str(ROOT.parent / "shared" / "data" / "cifar10" / "test.parquet"))
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="50 images, two rounds, few labels")
    parser.add_argument("--out", type=Path, help="write the numbers here, as JSON")
    options = parser.parse_args()
    images, rounds, draws = (50, 2, 200) if options.quick else (options.images, options.rounds, 1_000)
    results: dict[str, dict] = {}
    for name, measure in (
        ("cifar_small", lambda: cifar_small(options.data, images, rounds)),
        ("EfficientNet-Lite0", lambda: efficientnet(rounds, draws)),
    ):
        try:
            results[name] = measure()
        except InputError as reason:
            print(f"{name} is left out: {reason}")
            continue
        print(name, json.dumps(results[name], indent=1))
    if "cifar_small" in results:
        told("int8: cifar_small, onnx+int8 / onnx", results["cifar_small"]["ratio"], least=1.7)
        told("int8: cifar_small, points of certified accuracy lost", results["cifar_small"]["points lost"], most=1.5)
    if "EfficientNet-Lite0" in results:
        told("int8: EfficientNet-Lite0, onnx+int8 / onnx", results["EfficientNet-Lite0"]["ratio"], least=1.4)
        told(
            "int8: EfficientNet-Lite0, equal labels", results["EfficientNet-Lite0"]["share of equal labels"], least=0.9
        )
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
