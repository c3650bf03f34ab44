"""How wide are the bounds on a mean? The distance from the sample mean to each one-sided bound, averaged over samples.

"moments" is betting on moments, with a guess from 100 draws of their own: what the method betting of soft votes does.

python benchmarks/means.py [--samples 20]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.means import (
    betting_lower,
    betting_moments_lower,
    betting_moments_upper,
    betting_upper,
    empirical_bernstein_lower,
    empirical_bernstein_upper,
    hoeffding_lower,
    hoeffding_upper,
)

ALPHA, SIZES, GUESS = 0.001, (100, 1_000, 10_000), 100
rng = np.random.default_rng(0)
SAMPLERS: dict[str, Callable[[tuple[int, int]], NDArray[np.float64]]] = {
    "beta(2, 2)": lambda shape: rng.beta(2, 2, shape),
    "beta(0.3, 0.3)": lambda shape: rng.beta(0.3, 0.3, shape),
    "beta(10, 30)": lambda shape: rng.beta(10, 30, shape),
    "beta(30, 1)": lambda shape: rng.beta(30, 1, shape),
    "two points: 0, 1": lambda shape: 1.0 * (rng.random(shape) < 0.5),
    "two points: 0.4, 0.6": lambda shape: 0.4 + 0.2 * (rng.random(shape) < 0.5),
    "spiked: 1, 1% at 0": lambda shape: 1.0 * (rng.random(shape) >= 0.01),
    "spiked: 0.98 to 1, 1% at 0": lambda shape: rng.uniform(0.98, 1, shape) * (rng.random(shape) >= 0.01),
    "constant: 1": lambda shape: np.ones(shape),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20)
    args = parser.parse_args()
    names = ("Hoeffding", "Bernstein", "moments", "betting")
    print(f"{f'alpha = {ALPHA}':27} {'':>6}  {'below the sample mean':^39}  {'above the sample mean':^39}  betting,")
    print(f"{'distribution':27} {'n':>6}  " + "  ".join([" ".join(f"{name:>9}" for name in names)] * 2), " ms a row")
    for name, sampler in SAMPLERS.items():
        for n in SIZES:
            x = sampler((args.samples, n))
            mean, variance = x.mean(axis=1), x.var(axis=1, ddof=1)
            start = time.perf_counter()
            bet = betting_lower(x, ALPHA)
            milliseconds = 1000 * (time.perf_counter() - start) / args.samples
            bernstein = empirical_bernstein_lower(mean, variance, n, ALPHA)
            before = sampler((args.samples, GUESS))
            guess = before.mean(axis=1), (GUESS * before.var(axis=1) + 0.25) / (GUESS + 1)
            moments = betting_moments_lower(mean, variance, n, ALPHA, *guess)
            below = [mean - bound for bound in (hoeffding_lower(mean, n, ALPHA), bernstein, moments, bet)]
            bernstein = empirical_bernstein_upper(mean, variance, n, ALPHA)
            moments = betting_moments_upper(mean, variance, n, ALPHA, *guess)
            uppers = hoeffding_upper(mean, n, ALPHA), bernstein, moments, betting_upper(x, ALPHA)
            above = [bound - mean for bound in uppers]
            widths = "  ".join(" ".join(f"{width.mean():9.5f}" for width in side) for side in (below, above))
            print(f"{name:27} {n:6}  {widths}  {milliseconds:8.1f}", flush=True)


if __name__ == "__main__":
    main()
