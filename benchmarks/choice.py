"""Does `auto` keep its promise? The whole time of a count with `auto` against the best engine named in advance.

    python benchmarks/choice.py [--cases digits_cnn] [--draws 600,6000] [--rounds 3] [--quick] [--out FILE]

`SmoothedClassifier(network, …).count(x, n)` for n = 600, 6,000 and 60,000, each time in a new process, from the first
call on: choosing, building and exporting are included, starting Python and reading weights are not. The best is the
quickest of the engines and batches below, as if its user had known it. Of a count that takes long, what comes after
the first draws is taken from the rate of some seconds. All take turns; times are the least of the rounds, because
whatever else the machine does only adds to them.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from smoothcert import InputError, SmoothedClassifier
from smoothcert.experiments.many_classes import efficientnet_lite0
from smoothcert.models import build
from smoothcert.sampling.blocks import Input
from targets import told

Network = Callable[[], torch.nn.Module]
CASES: dict[str, tuple[Network, tuple[int, ...], int, tuple[tuple[str, int], ...]]] = {
    "digits_cnn": (
        partial(build, "digits_cnn"),
        (1, 8, 8),
        10,
        (("torch", 600), ("torch", 1600), ("torch+folded+lanes", 400), ("onnx", 1600)),
    ),
    "cifar_resnet20": (
        partial(build, "cifar_resnet20"),
        (3, 32, 32),
        10,
        (("torch", 100), ("torch+folded+lanes", 25), ("torch+folded+channels-last+lanes", 25), ("onnx", 25)),
    ),
    "efficientnet_lite0": (
        efficientnet_lite0,
        (3, 224, 224),
        1000,
        (("torch", 4), ("torch+folded+lanes", 4), ("torch+folded+channels-last+lanes", 4), ("onnx", 4)),
    ),
}
"""The network, its inputs' shape, its classes, and the engines and batches one of which is the best."""

DRAWS, LONGEST = (600, 6_000, 60_000), 8.0
"""Counts, and the seconds of one that are really drawn after its first draws."""


def whole_time(case: str, engine: str, batch: int | str, draws: int) -> float:
    """Seconds that the count takes, its second part extrapolated where it would take long."""
    network, shape, classes, _ = CASES[case]
    torch.manual_seed(0)
    model = network().eval()
    source = Input("x", np.random.default_rng(0).random(shape).astype(np.float32))
    smoothed = SmoothedClassifier(model, sigma=0.5, num_classes=classes, engine=engine, batch=batch, seed=0)
    start = perf_counter()
    smoothed._choose_engine([source], draws)
    first = min(draws, 600)
    smoothed.count(source, first)
    spent, left = perf_counter() - start, draws - first
    start, drawn = perf_counter(), 0
    while drawn < left and perf_counter() - start < LONGEST:
        step = min(left - drawn, max(first, drawn))
        smoothed.count(source, step)
        drawn += step
    return spent + (perf_counter() - start) * (left / drawn if drawn else 0.0)


def in_a_process(case: str, engine: str, batch: int | str, draws: int) -> float:
    command = [sys.executable, __file__, "--child", case, engine, str(batch), str(draws)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise InputError(done.stderr.strip().splitlines()[-1])
    return float(done.stdout.split()[-1])


def measure(case: str, draws: int, rounds: int) -> dict[str, float]:
    """The least time of `auto` and of each that is named."""
    contenders = [("auto", "auto"), *CASES[case][3]]
    times: dict[str, list[float]] = {f"{engine}, batch {batch}": [] for engine, batch in contenders}
    for _ in range(rounds):
        for (engine, batch), found in zip(contenders, times.values(), strict=True):
            found.append(in_a_process(case, engine, batch, draws))
    return {name: min(found) for name, found in times.items()}


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if sys.argv[1:2] == ["--child"]:
        case, engine, batch, draws = sys.argv[2:]
        print(whole_time(case, engine, batch if batch == "auto" else int(batch), int(draws)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES), help="networks, separated by commas")
    parser.add_argument("--draws", default=",".join(map(str, DRAWS)), help="counts, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--out", type=Path, help="write the numbers here, as JSON")
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    for case in options.cases.split(","):
        for draws in map(int, options.draws.split(",")):
            name = f"{case}, {draws:,} draws"
            try:
                times = results[name] = measure(case, draws, 1 if options.quick else options.rounds)
            except InputError as reason:
                print(f"{case} is left out: {reason}")
                break
            print(f"{name}: " + "; ".join(f"{who} {seconds:.2f} s" for who, seconds in times.items()), flush=True)
            auto, *named = times.values()
            told(f"choice: {name}, auto / best named", auto / min(named), most=2 if draws <= 600 else 1.5)
            if options.out:
                options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
