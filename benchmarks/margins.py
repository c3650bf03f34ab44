"""How much of the radius do the bounds for margin votes cost? Side by side with bounds that see more.

First votes that are 0 or 1: the comparison with a binomial against Clopper and Pearson's bound, which only such votes
allow. Then votes of several widths on a margin that leads by so many deviations of its own: what is chosen on 100
selection draws, from votes spread on the grid, against betting that sees every vote in its order.

python benchmarks/margins.py [--samples 20]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray
from scipy import special

from smoothcert.bounds import betting_lower, betting_moments_lower, clopper_pearson_lower
from smoothcert.bounds.comparison import comparison_lower
from smoothcert.bounds.ramps import ramps
from smoothcert.radii import exact_mono
from smoothcert.sampling.margins import Spread

ALPHA, SIZES, SELECTION = 0.001, (1_000, 10_000), 100
LEADS, WIDTHS = (0.5, 1.0, 2.0, 3.0), (0.1, 0.5, 1.0, 2.0, 4.0, 10.0)
SHARES = (0.53, 0.56, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0)
rng = np.random.default_rng(0)


def spread(margins: NDArray[np.float64], width: float) -> NDArray[np.float64]:
    """The votes of each row as they are kept."""
    both = (np.stack([row, np.zeros_like(row)], axis=1) for row in margins)
    return np.stack([Spread.of(scores, width, 0).of_class(0, len(scores), np.arange(2))[1] for scores in both])


def radius(bounds: NDArray[np.float64], width: float) -> float:
    return float(np.maximum(exact_mono(bounds, 1.0, 1 / (2 * width)), 0.0).mean())


def two_points() -> None:
    print(f"votes that are 0 or 1, alpha = {ALPHA}: radius / sigma, and its share of Clopper and Pearson's")
    print(f"{'n':>6} {'share of 1':>10} {'count':>8} {'comparison':>10} {'ratio':>7}")
    for n in SIZES:
        for share in SHARES:
            wins = np.floor(n * share)
            exact, ours = (float(special.ndtri(f(wins, n, ALPHA))) for f in (clopper_pearson_lower, comparison_lower))
            if ours > 0:
                print(f"{n:6} {share:10} {exact:8.4f} {ours:10.4f} {ours / exact:7.4f}")


def ramp_votes(samples: int) -> None:
    print(f"\nmargin votes, sigma = 1, {samples} samples: average radius, and its share of betting's")
    print(f"{'lead':>5} {'width':>6} {'n':>6} {'betting':>8} {'moments':>8} {'ours':>8} {'ratio':>7}  ms a mean")
    for lead in LEADS:
        for width in WIDTHS:
            for n in SIZES:
                before, margins = (lead + rng.normal(size=(samples, size)) for size in (SELECTION, n))
                x, y = (np.clip(0.5 + z / (2 * width), 0, 1) for z in (margins, before))
                guess = y.mean(axis=1), (SELECTION * y.var(axis=1) + 0.25) / (SELECTION + 1)
                moments = betting_moments_lower(x.mean(axis=1), x.var(axis=1, ddof=1), n, ALPHA, *guess)
                kept = spread(before, width), spread(margins, width)
                start = time.perf_counter()
                ours = ramps(*kept, ALPHA)
                milliseconds = 1000 * (time.perf_counter() - start) / samples
                found = [radius(bounds, width) for bounds in (betting_lower(x, ALPHA), moments, ours)]
                shown = " ".join(f"{r:8.4f}" for r in found)
                print(f"{lead:5} {width:6} {n:6} {shown} {found[2] / found[0]:7.4f}  {milliseconds:9.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20)
    args = parser.parse_args()
    two_points()
    ramp_votes(args.samples)


if __name__ == "__main__":
    main()
