"""One level α spread over several looks at a growing sample; for two outcomes exactly.

A claim may be made at any of the looks n₁ < … < n_K = max_n, which are fixed in advance. By look n at most
α √(n / max_n) of the error is spent. On the logs of `benchmarks/adaptive.py` smaller exponents lose more power at
max_n for about the same draws; between 0.5 and 0.8 they trade power for draws at nearly the same rate.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from smoothcert.bounds.method import Counts
from smoothcert.errors import InputError

Floats = NDArray[np.float64]
Looks = tuple[int, ...]

BLOCK = 100
NEGLIGIBLE = 1e-16  # mass that a recursion may drop at each end of each step; it is counted as crossed
RECURSION_ERROR = 1e-9  # relative; the recursion sums positive terms only, each good to about 1e-12


@lru_cache(maxsize=64)
def looks(max_n: int, growth: float = 1.2, step: int = BLOCK) -> Looks:
    """After a step of 100 draws, then × growth rounded up to whole steps, the last one max_n.

    >>> looks(1500)
    (100, 200, 300, 400, 500, 600, 800, 1000, 1200, 1500)
    >>> looks(1500, growth=2)
    (100, 200, 400, 800, 1500)
    >>> looks(200, step=20)
    (20, 40, 60, 80, 100, 120, 160, 200)
    """
    if max_n < step or max_n % step:
        raise InputError(f"max_n must be a positive multiple of {step}, got {max_n}.")
    steps = [1]
    while steps[-1] * step < max_n:
        # round() keeps 10 × 1.1 at 11 steps, where ceil(11.000000000000002) has 12
        steps.append(min(int(np.ceil(round(steps[-1] * growth, 9))), max_n // step))
    return tuple(step * k for k in steps)


def portions(at: Looks, alpha: float) -> Floats:
    """α wᵢ with wᵢ = √(nᵢ/max_n) − √(nᵢ₋₁/max_n), so Σ wᵢ = 1.

    Fixed-n bounds, each at the level of its look, all hold at once with probability at least 1 − α.
    """
    return np.diff(alpha * np.sqrt(np.array(at) / at[-1]), prepend=0.0)


@lru_cache(maxsize=4096)
def boundary(target: float, at: Looks, alpha: float) -> Counts:
    """The count needed at each look to claim `p > target`; n + 1 where no count is enough.

    At each look it is the smallest count b for which, at p = target,

        P(crossed before) + P(not crossed before, Nᵢ ≥ b) ≤ α √(nᵢ / max_n),

    by forward recursion of the counts that have not crossed. So the probability of ever crossing is at most α at
    p = target, and below the target smaller still (coupling: fewer successes cross less). What one look cannot
    spend, counts being whole, is left for the next.
    """
    needed = np.empty(len(at), dtype=np.int64)
    budget = np.cumsum(portions(at, alpha)) * (1 - RECURSION_ERROR)
    low, mass, spent, before = 0, np.ones(1), 0.0, 0
    for i, n in enumerate(at):
        low, mass, dropped = _draw(low, mass, n - before, target)
        spent += dropped
        tail = np.append(np.cumsum(mass[::-1])[::-1], 0.0)  # tail[j] = P(not crossed before, N ≥ low + j)
        j = int(np.argmax(tail <= max(budget[i] - spent, 0.0)))
        needed[i] = low + j if spent <= budget[i] else n + 1
        spent += tail[j]
        mass, before = mass[:j], n
    needed.setflags(write=False)
    return needed


def crossing_probability(needed: ArrayLike, at: Looks, p: float) -> float:
    """`P(Nᵢ ≥ needed[i] at some look i)`, Nᵢ the successes of the first nᵢ draws; above the truth by 1e-14 at most."""
    low, mass, crossed, before = 0, np.ones(1), 0.0, 0
    for n, b in zip(at, np.asarray(needed), strict=True):
        low, mass, dropped = _draw(low, mass, n - before, p)
        keep = max(int(b) - low, 0)
        crossed += dropped + mass[keep:].sum()
        mass, before = mass[:keep], n
    return float(crossed)


@lru_cache(maxsize=4096)
def give_up(target: float, at: Looks, alpha: float, futility: float, n0: int) -> Counts:
    """The count below which the claim `p > target` is hopeless: entry 0 for the n0 selection draws alone, entry i
    for the selection draws and the estimation draws of look i together.

    The mirror of `boundary`. Let q be the share that the last look alone passes with probability 1 − futility. An
    input with p = q is given up with probability at most futility, spent over the looks in the same way: now
    failures are counted, and crossing claims that they are more frequent than 1 − q. Only power rests on this; the
    claims hold whenever, and for whatever reason, the sampling stops.
    """
    pooled = (n0, *(n0 + n for n in at))
    needed = boundary(target, at, alpha)
    if np.all(needed > at):
        least = np.array(pooled) + 1
    elif futility == 0:
        least = np.zeros(len(pooled), dtype=np.int64)
    else:
        last = min(int(needed[-1]), at[-1])
        q = float(special.betaincinv(last, at[-1] - last + 1, 1 - futility))
        least = np.array(pooled) - boundary(1 - q, pooled, futility) + 1
    least.setflags(write=False)
    return least


def _draw(low: int, mass: Floats, draws: int, p: float) -> tuple[int, Floats, float]:
    """(low, mass) with `mass[j] = P(N = low + j)` after further draws, and the mass that fell off at the ends."""
    if not mass.size:
        return low, mass, 0.0
    first, pmf, outside = _increments(draws, p)
    dropped = outside * mass.sum()
    mass, low = np.convolve(mass, pmf), low + first
    start = int(np.searchsorted(np.cumsum(mass), NEGLIGIBLE))
    return low + start, mass[start:], dropped + mass[:start].sum()


@lru_cache(maxsize=4096)
def _increments(draws: int, p: float) -> tuple[int, Floats, float]:
    """The binomial probabilities of the counts from `first` on, and the probability outside of them."""
    law = stats.binom(draws, p)
    first, last = int(law.ppf(NEGLIGIBLE)), int(law.isf(NEGLIGIBLE))
    return first, law.pmf(np.arange(first, last + 1)), float(law.cdf(first - 1) + law.sf(last))
