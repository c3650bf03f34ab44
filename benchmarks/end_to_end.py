"""How many times faster is the same statement? Certified accuracy at ε = 0.5 on 100 CIFAR-10 images.

    python benchmarks/end_to_end.py [--data test.parquet] [--model NAME --weights FILE] [--images 100] [--out FILE]

The published way (Cohen, Rosenfeld and Kolter, 2019): n0 = 100 and n = 100 000 draws of each image in eager PyTorch,
batch 1000, and the Clopper-Pearson bound; timed on three images and multiplied. Ours: `certify_dataset` with
radii=[0.5], which draws until the radius is decided, with the engine and the batch that `auto` takes; the time it takes
to choose them is included. The published way is timed before ours and after it, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from scipy.stats import beta, norm

from smoothcert import SmoothedClassifier
from smoothcert.data import open_data, select
from smoothcert.models import load_model

ROOT = Path(__file__).resolve().parents[1]
SIGMA, RADIUS, ALPHA, N0, N, BATCH, TIMED = 0.5, 0.5, 0.001, 100, 100_000, 1_000, 3


def count(network: torch.nn.Module, x: torch.Tensor, draws: int) -> np.ndarray:
    """`Smooth._sample_noise` of the published code."""
    counts = np.zeros(10, dtype=int)
    with torch.no_grad():
        for start in range(0, draws, BATCH):
            rows = x.repeat((min(BATCH, draws - start), 1, 1, 1))
            for label in network(rows + torch.randn_like(rows) * SIGMA).argmax(1).cpu().numpy():
                counts[label] += 1
    return counts


def published(network: torch.nn.Module, x: torch.Tensor, n: int) -> float:
    """The radius, 0 where it abstains."""
    top = count(network, x, N0).argmax()
    votes = count(network, x, n)[top]
    return max(SIGMA * float(norm.ppf(beta.ppf(ALPHA, votes, n - votes + 1))), 0.0) if votes else 0.0


def seconds_an_image(network: torch.nn.Module, xs: list[torch.Tensor], n: int) -> float:
    start = perf_counter()
    for x in xs:
        published(network, x, n)
    return (perf_counter() - start) / len(xs)


def main() -> None:
    data = ROOT.parent / "shared" / "data" / "cifar10" / "test.parquet"
    weights = ROOT / "experiments" / "models" / "cifar_small-noise0.50.safetensors"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data, help="CIFAR-10 test images (.parquet)")
    parser.add_argument("--model", default="cifar_small", help="a network trained under noise of 0.5")
    parser.add_argument("--weights", type=Path, default=weights)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="5 images; n = 2 000 timed and multiplied")
    parser.add_argument("--out", type=Path, help="write the numbers here, as JSON")
    options = parser.parse_args()
    for path in (options.data, options.weights):
        if not path.exists():
            sys.exit(print(f"Left out: there is no {path}; give it with --data or --weights."))
    logging.basicConfig(format="%(message)s")
    logging.getLogger("smoothcert").setLevel(logging.INFO)
    images = 5 if options.quick else options.images
    timed = 2_000 if options.quick else N
    network = load_model(options.model, weights=options.weights, device="cpu").eval()
    dataset = open_data(str(options.data))
    rows = select(dataset, skip=max(len(dataset) // images, 1), limit=images)
    xs = [torch.from_numpy(dataset[row].array) for row in rows[:TIMED]]
    before = seconds_an_image(network, xs, timed)
    with tempfile.TemporaryDirectory() as folder:
        start = perf_counter()
        run = SmoothedClassifier(network, sigma=SIGMA, num_classes=10, seed=0).certify_dataset(
            dataset,
            out=Path(folder) / "run.smoothcert",
            n0=N0,
            radii=[RADIUS],
            max_n=N,
            alpha=ALPHA,
            skip=max(len(dataset) // images, 1),
            limit=images,
        )
        ours = perf_counter() - start
        certified = [
            c.certified_at(RADIUS) and c.prediction == y for c, y in zip(run.certificates(), run.labels, strict=True)
        ]
        draws = run.draws / len(run)
    theirs = (before + seconds_an_image(network, xs, timed)) / 2 * images * (N0 + N) / (N0 + timed)
    result = {
        "images": images,
        "certified accuracy at 0.5": float(np.mean(certified)),
        "draws an image": draws,
        "published loop, seconds (extrapolated)": theirs,
        "smoothcert, seconds": ours,
        "times faster": theirs / ours,
    }
    for name, value in result.items():
        print(f"{name:40} {value:12,.3f}")
    if options.out:
        options.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
