"""Exact coverage of a bound on the margin, by adding up the probability of every outcome.

    python -m smoothcert.experiments.coverage

prints the smallest coverage of every method over all class probabilities; the candidate is class 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from smoothcert.bounds import METHODS, Method

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Claims = Callable[[Ints], Floats]
"""Estimation counts (m, c) of class 0, the candidate, and its rivals -> the claimed margin t of each row."""

TIE = 1e-12  # a claim that exceeds the true margin by less is right: both are rounded


def claims_of(method: Method, alpha: float) -> Claims:
    """The claims of a registered method whose selection counts are c, c − 1, …, 1."""

    def claims(counts: Ints) -> Floats:
        c = counts.shape[1]
        return method(np.broadcast_to(np.arange(c, 0, -1), counts.shape), counts, alpha).t

    return claims


@lru_cache(maxsize=256)
def outcomes(n: int, c: int) -> Ints:
    """All vectors of c counts that add up to n, one a row.

    >>> outcomes(2, 2).tolist()
    [[0, 2], [1, 1], [2, 0]]
    """
    if c == 1:
        return np.array([[n]])
    return np.concatenate([np.insert(outcomes(n - k, c - 1), 0, k, axis=1) for k in range(n + 1)])


def true_margin(p: Floats) -> Floats:
    """Φ⁻¹(p_0) − Φ⁻¹(max_{j>0} p_j) of each row."""
    return np.asarray(special.ndtri(p[:, 0]) - special.ndtri(p[:, 1:].max(axis=1)))


def coverage(claims: Claims, p: ArrayLike, n: int) -> Floats:
    """The probability, for each row of p, that n draws lead to a claim that is not above the true margin.

    A claim t ≤ 0 is an abstention, and right.

    >>> always_one = lambda counts: np.ones(len(counts))
    >>> coverage(always_one, [[0.9, 0.1], [0.6, 0.4]], 5).round(9)
    array([1., 0.])
    """
    p = np.atleast_2d(np.asarray(p, dtype=np.float64))
    return 1 - _wrong(claims(outcomes(n, p.shape[1])), p, n)


def worst_case(claims: Claims, n: int, c: int) -> tuple[float, Floats]:
    """The smallest coverage found, and the p that has it.

    Searched are a grid of the simplex with its edges and corners and, because coverage drops where the true margin
    falls below a claim, the points just below each claim (`_just_below`), refined around the smallest values.
    """
    t = claims(outcomes(n, c))
    steps = {2: 2000, 3: 120}.get(c, 30)
    p = outcomes(steps, c) / steps
    wrong = _wrong(t, p, n)
    worst, where = wrong.max(), p[wrong.argmax()]
    shape = np.meshgrid(np.unique(t[t > 0]), np.linspace(0, c - 2, 17), [0, 1], np.arange(c - 1))
    claim, others, even, rival = (v.ravel() for v in shape)
    for width in (1 / 16, 1 / 128, 1 / 1024):
        if not claim.size:
            break
        p = _just_below(claim, others, even, rival, c)
        wrong = _wrong(t, p, n)
        if wrong.max() > worst:
            worst, where = wrong.max(), p[wrong.argmax()]
        top = np.repeat(np.argsort(wrong)[-20:], 17)
        nearby = others[top] + (c - 2) * width * np.tile(np.linspace(-1, 1, 17), top.size // 17)
        claim, others, even, rival = claim[top], nearby.clip(0, c - 2), even[top], rival[top]
    return 1 - float(worst), where


def _just_below(claim: Floats, others: Floats, even: Ints, rival: Ints, c: int) -> Floats:
    """The p with margin `claim` − 10⁻⁹ whose third and further classes hold `others` times the runner-up's mass.

    It is spread evenly over them, or on as few as can hold it with none above the runner-up, who is class 1 + `rival`.
    """
    t = claim - 1e-9
    low, high = np.full(t.shape, -40.0), -t / 2
    for _ in range(60):
        z = (low + high) / 2
        full = special.ndtr(z + t) + (1 + others) * special.ndtr(z) > 1
        low, high = np.where(full, low, z), np.where(full, z, high)
    few = np.clip(others[:, None] - np.arange(c - 2), 0, 1)
    shares = np.where(even[:, None] == 1, others[:, None] / max(c - 2, 1), few)
    rivals = special.ndtr(low)[:, None] * np.insert(shares, 0, 1, axis=1)
    turned = np.take_along_axis(rivals, (np.arange(c - 1) - rival[:, None]) % (c - 1), axis=1)
    return np.hstack([special.ndtr(low + t)[:, None], turned])


def _wrong(t: Floats, p: Floats, n: int) -> Floats:
    """The probability of a claim that is positive and above the true margin; t belongs to `outcomes(n, c)`."""
    counts, t = outcomes(n, p.shape[1])[t > 0], t[t > 0]
    log_ways = special.gammaln(n + 1) - special.gammaln(counts + 1).sum(axis=1)
    true = true_margin(p)
    log_p = np.log(np.maximum(p, 1e-300))  # so that 0 log 0 = 0
    result = np.empty(len(p))
    for rows in np.array_split(np.arange(len(p)), 1 + p.shape[0] * counts.shape[0] // 10**6):
        probability = np.exp(log_p[rows] @ counts.T + log_ways)
        result[rows] = (probability * (t > true[rows, None] + TIE)).sum(axis=1)
    return result


def main() -> None:
    """One line for each c, n and α: the smallest coverage of every method."""
    print(f"{'c':>2} {'n':>3} {'1 - alpha':>9} " + " ".join(f"{name:>10}" for name in METHODS))
    for c in (2, 3, 4):
        for n in (5, 10, 20, 40):
            for alpha in (0.1, 0.05, 0.01, 0.001):
                found = [worst_case(claims_of(method, alpha), n, c)[0] for method in METHODS.values()]
                print(f"{c:2} {n:3} {1 - alpha:9} " + " ".join(f"{value:10.5f}" for value in found), flush=True)


if __name__ == "__main__":
    main()
