"""What does the pairwise bound cost? Milliseconds a pair, in the mix of pairs that a run on CIFAR-10 has.

Each row of the logs of Cohen, Rosenfeld and Kolter (2019, CIFAR-10) becomes an input whose candidate has the share
p = Φ(radius/σ), or ½ where they abstained; nine rivals share the rest by a flat Dirichlet draw. The time of a pair is
processor time, the best of several rounds, each without what the ones before it remember; the mean is over the distinct
pairs.

    python benchmarks/pairwise.py [--data DIRECTORY] [--inputs 300] [--rounds 3]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special

from smoothcert.bounds import pairwise_margin

SIGMAS = ("0.12", "0.25", "0.50", "1.00")
LIMITS = {1_000: None, 10_000: 60, 100_000: 200}
ALPHA, RIVALS = 0.001, 9


def shares(directory: Path) -> NDArray[np.float64]:
    """The candidate's p of every row, all noise levels together."""
    p = []
    for sigma in SIGMAS:
        path = directory / f"cifar10__resnet110__noise_{sigma}__test__sigma_{sigma}.tsv"
        if not path.exists():
            sys.exit(f"{path} is missing: pass the directory of the published logs with --data.")
        radius = np.loadtxt(path, skiprows=1, usecols=3)
        p.append(special.ndtr(radius / float(sigma)))
    return np.concatenate(p)


def forget() -> None:
    """Margins that were computed before are kept; a benchmark wants them computed again."""
    sys.modules["smoothcert.bounds.pairwise"]._margin.cache_clear()


def main() -> None:
    shared = Path(__file__).resolve().parents[2] / "shared" / "data" / "cohen2019"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=shared, help="directory of the published logs (*.tsv)")
    parser.add_argument("--inputs", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    p1 = rng.choice(shares(args.data), args.inputs, replace=False)
    p = np.column_stack([p1, (1 - p1)[:, None] * rng.dirichlet(np.ones(RIVALS), p1.size)])
    print(f"{'n':>7} {'pairs':>6} {'ms a pair':>9} {'slowest':>7}  wanted")
    for n, limit in LIMITS.items():
        counts = rng.multinomial(n, p)
        pairs = np.unique(np.column_stack([counts[:, 0], counts[:, 1:].max(axis=1)]), axis=0)
        times = np.full(len(pairs), np.inf)
        for _ in range(args.rounds):
            forget()
            for i, (n1, nj) in enumerate(pairs):
                start = time.process_time()
                pairwise_margin(n1, nj, n, ALPHA)
                times[i] = min(times[i], 1000 * (time.process_time() - start))
        wanted = f"<= {limit}" if limit else ""
        print(f"{n:7} {len(pairs):6} {times.mean():9.1f} {times.max():7.0f}  {wanted}", flush=True)


if __name__ == "__main__":
    main()
