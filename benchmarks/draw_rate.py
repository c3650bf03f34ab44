"""What the wrapper costs: draws a second of `certify` against the bare forward pass, and peak memory against n.

    python benchmarks/draw_rate.py [--rounds 7] [--json FILE]

A CIFAR ResNet-20 on the CPU, batch 100. Forward passes and certification alternate in one run, so that both see the
same machine; the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import torch

from smoothcert import SmoothedClassifier
from smoothcert.models import build

BATCH, DRAWS = 100, 1_000


def rates(rounds: int) -> tuple[float, float]:
    """Median draws a second of the bare forward pass and of certification."""
    torch.manual_seed(0)
    model, x = build("cifar_resnet20").eval(), torch.rand(3, 32, 32)
    smoothed = SmoothedClassifier(model, sigma=0.5, num_classes=10, batch=BATCH, votes="labels", seed=0)
    rows = x.repeat(BATCH, 1, 1, 1)
    forward, certify = [], []
    for round in range(rounds + 1):
        start = perf_counter()
        with torch.inference_mode():
            for _ in range(DRAWS // BATCH):
                model(rows)
        middle = perf_counter()
        smoothed.certify(x, n0=BATCH, n=DRAWS - BATCH, method="mono")
        end = perf_counter()
        if round:  # the first one warms up
            forward.append(DRAWS / (middle - start))
            certify.append(DRAWS / (end - middle))
    return statistics.median(forward), statistics.median(certify)


def peak_memory(n: int) -> int:
    """Peak memory in MiB of a process that certifies one input with n draws."""
    command = [sys.executable, __file__, "--certify", str(n)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--certify", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.certify:
        smoothed = SmoothedClassifier(build("cifar_resnet20"), sigma=0.5, num_classes=10, batch=BATCH, seed=0)
        smoothed.certify(torch.rand(3, 32, 32), n=options.certify)
        status = Path("/proc/self/status").read_text()  # getrusage would tell of the parent, too
        print(int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) // 1024)
        return
    forward, certify = rates(options.rounds)
    result = {
        "forward draws/s": round(forward),
        "certify draws/s": round(certify),
        "ratio": round(certify / forward, 3),
        "peak MiB at n = 1 000": peak_memory(1_000),
        "peak MiB at n = 100 000": peak_memory(100_000),
    }
    for name, value in result.items():
        print(f"{name:26} {value}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
