"""What sound noise costs: values a second of grid noise, and `certify`'s draw rate with it, against floating point.

    python benchmarks/grid_noise.py [--rounds 7] [--json FILE]

Values a second of processor time: a batch of 1,600 noisy digits (16 blocks of 6,400 values, on a grid of 1/16) or of
100 CIFAR-10 images in one thread, by Numba where it is installed. Draw rate: a CIFAR ResNet-20 on the CPU, batch 100,
8-bit input. Both kinds of noise alternate in one run, so that they see the same machine; ratios are those of the
medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from time import perf_counter, thread_time

import numpy as np
import torch

from smoothcert import SmoothedClassifier
from smoothcert.models import build
from smoothcert.sampling.noise import Centre, Noise, Piece, open_noise
from smoothcert.sampling.noise.base import PATIENCE
from targets import told

BATCH, DRAWS, SIGMAS = 100, 1_000, (0.12, 0.25, 0.5, 1.0, 2.0)
KINDS = ("gaussian", "grid")
SHAPE = (3, 32, 32)


def seconds(noise: Noise, block: int, centre: Centre, rows: torch.Tensor) -> float:
    """The processor time of a thread that makes the noisy copies of a batch."""
    keys = [i.to_bytes(16, "little") for i in range(block, block + len(rows) // BATCH)]
    start = thread_time()
    noise.draw([Piece(key, 0, BATCH, centre) for key in keys], rows)
    return thread_time() - start


def values_a_second(shape: tuple[int, ...], sigma: float, levels: int, rounds: int) -> dict[str, float]:
    """Median values a second of either noise, in batches of at least 100,000 values."""
    x = np.zeros(shape, dtype=np.float32)
    rows = torch.empty(BATCH * -(-100_000 // (BATCH * x.size)), *shape)
    kinds = {kind: open_noise(kind, sigma, levels if kind == "grid" else None) for kind in KINDS}
    centres = {kind: noise.centre(x).moved(rows.device) for kind, noise in kinds.items()}
    warm, times = 1 + PATIENCE // rows.numel(), {kind: [] for kind in KINDS}
    for i in range(warm + 10 * rounds):
        for kind, noise in kinds.items():
            times[kind].append(seconds(noise, i, centres[kind], rows))
    return {kind: rows.numel() / statistics.median(found[warm:]) for kind, found in times.items()}


def draws_a_second(rounds: int) -> dict[str, float]:
    """Median draws a second of certification under either noise, σ = 0.5."""
    torch.manual_seed(0)
    model, x = build("cifar_resnet20").eval(), torch.randint(0, 256, SHAPE) / 255
    smoothed = {
        kind: SmoothedClassifier(
            model, sigma=0.5, num_classes=10, batch=BATCH, engine="torch", noise=kind, votes="labels", seed=0
        )
        for kind in KINDS
    }
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds + 1):  # the first one warms up
        for kind in KINDS:
            start = perf_counter()
            smoothed[kind].certify(x, n0=BATCH, n=DRAWS - BATCH, method="mono")
            times[kind].append(perf_counter() - start)
    return {kind: DRAWS / statistics.median(found[1:]) for kind, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rates = draws_a_second(options.rounds)
    result = {f"{kind} draws/s": round(rate) for kind, rate in rates.items()}
    result["ratio of draw rates"] = round(rates["grid"] / rates["gaussian"], 3)
    torch.set_num_threads(1)
    for name, shape, levels in (("digit", (1, 8, 8), 16), ("image", SHAPE, 255)):
        for sigma in SIGMAS:
            for kind, rate in values_a_second(shape, sigma, levels, options.rounds).items():
                result[f"{name}: {kind} million values/s, sigma {sigma:g}"] = round(rate / 1e6)
    for name, value in result.items():
        print(f"{name:48} {value}")
    for name in ("digit", "image"):
        for kind, least in (("gaussian", 300), ("grid", 500)):
            slowest = min(result[f"{name}: {kind} million values/s, sigma {sigma:g}"] for sigma in SIGMAS)
            told(f"grid_noise: {name}, {kind}, million values/s a thread", slowest, least=least)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
