"""All benchmarks in one go, at sizes that take less than an hour together on two cores; every target at the end.

    python benchmarks/run_all.py [--only throughput,int8]

What a benchmark prints is shown as it comes. Each can be run alone, and larger: see its own first lines. A target that
is missed is told and is no failure, since machines differ; a benchmark that fails is one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from targets import MARK

FOLDER = Path(__file__).parent
SIZES: dict[str, list[str]] = {
    "throughput": ["--rounds", "3"],
    "choice": ["--rounds", "1"],
    "int8": ["--images", "500", "--rounds", "5"],
    "grid_noise": ["--rounds", "5"],
    "draw_rate": ["--rounds", "3"],
    "cluster": ["--rounds", "3"],
    "end_to_end": ["--quick"],
    "scaling": ["--quick"],
    "adaptive": ["--replays", "5"],
    "duels": ["--inputs", "25", "--ask", "class,0.25"],
    "means": ["--samples", "10"],
    "pairwise": ["--inputs", "100", "--rounds", "2"],
}


def run(name: str, arguments: list[str], folder: str) -> tuple[list[str], int]:
    """The lines with targets, and the exit code. What a benchmark keeps goes into the folder."""
    command = [sys.executable, str(FOLDER / f"{name}.py"), *arguments]
    targets = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            if line.startswith(MARK):
                targets.append(line.removeprefix(MARK).strip())
    return targets, process.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SIZES), help="benchmarks, separated by commas")
    names = parser.parse_args().only.split(",")
    targets: list[str] = []
    times: dict[str, float] = {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            print(f"\n== {name} {' '.join(SIZES[name])}", flush=True)
            start = perf_counter()
            found, code = run(name, SIZES[name], folder)
            times[name] = perf_counter() - start
            targets += found
            failed += [name] if code else []
    print(f"\n== {sum(times.values()) / 60:.0f} minutes: " + ", ".join(f"{n} {t:.0f} s" for n, t in times.items()))
    print("\n".join(targets))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
