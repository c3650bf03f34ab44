"""A lower bound on the mean of independent variables in [0, 1] from their sum: comparison with a binomial."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from smoothcert.bounds.binomial import clopper_pearson_lower
from smoothcert.checks import check_alpha
from smoothcert.errors import InputError

Floats = NDArray[np.float64]
ROUNDING, HALVINGS = 1e-12, 20
"""The share of α for each value that pays for rounding, and how often the way to the next count is halved."""

OFF = 2.0**-51
"""More than rounding moves a step of the halving."""


def comparison_lower(total: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> Floats:
    """The largest p that the sum s of the values rejects: `min_t E(B − t)₊ / (s − t) ≤ α` for `B ~ Bin(n, p)`.

    For a mean of at most p, `E f(sum) ≤ E f(B)` for every convex f that grows (Hoeffding, 1963), so that the sum is s
    or more with probability at most `E(B − t)₊ / (s − t)`, for every t below s (Bentkus, 2004), and at most α where p
    is rejected. This grows with p: all smaller means are rejected, too.

    With `k = t + 1` it is `P(B ≥ k) (1 + E[B − k | B ≥ k]) / (1 + s − k)`. So a p with `P(B ≥ k) = α`, which is the
    bound of Clopper and Pearson for k, is rejected where `E[B − k | B ≥ k] ≤ s − k`. The largest such k is found
    first, then a p between its bound and the next one's. Where every value is 1, k is n: Clopper and Pearson's bound
    itself. The n values must be independent and have one mean.

    >>> [round(float(comparison_lower(s, 1000, 0.001)), 6) for s in (990, 1000)]
    [0.975331, 0.993116]
    """
    s, n, a = _checked(total, n, alpha)
    near = np.maximum(np.floor(s) - np.ceil(np.sqrt(n)), 0.0)  # mostly k is less than a standard deviation below s
    low, high = np.where(_fits(near, s, n, a), near, 0.0), np.floor(s)
    while np.any(low < high):
        k = np.ceil((low + high) / 2)
        fits = _fits(k, s, n, a)
        low, high = np.where(fits, k, low), np.where(fits, high, np.maximum(k - 1, low))
    below, above = _cell(low, n, a)
    for _ in range(HALVINGS):
        p = (below + above) / 2
        rejected = _rejected(p, low, s, n, a)
        below, above = np.where(rejected, p, below), np.where(rejected, above, p)
    return below


def comparison_reaches(p: ArrayLike, total: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> NDArray[np.bool_]:
    """Is `comparison_lower` at least this p from (0, 1]? One look instead of a search; of p the bound itself, rounding
    may say no.

    k is now the largest count whose bound of Clopper and Pearson is at most p, which is where `P(B ≥ k) ≥ α`. Where
    the search ends at the same k, it is at least p if it rejects the first of its steps from p on. Where it ends at a
    larger one, that is rejected by k + 1. Where it ends at a smaller one, neither k nor k + 1 rejects it: with
    `A_k = E(B − k + 1)₊ = P(B ≥ k) + A_{k+1}` and k's own bound, `A_{k+1} ≤ α (s − k)` would be `A_k ≤ α (s − k + 1)`.

    >>> [bool(comparison_reaches(p, 990, 1000, 0.001)) for p in (0.97533, 0.97534)]
    [True, False]
    """
    s, draws, level = _checked(total, n, alpha)
    asked = np.stack([np.broadcast_to(np.asarray(p, dtype=np.float64), s.shape), draws, level]).reshape(3, -1)
    (each, size, a), row = np.unique(asked, axis=1, return_inverse=True)  # mostly only the sums differ
    row = row.reshape(s.shape)
    low, high = _around(each, size, a)
    while np.any(low < high):
        k = np.ceil((low + high) / 2)
        fits = _is_count(k, each, size, a)
        low, high = np.where(fits, k, low), np.where(fits, high, np.maximum(k - 1, low))
    ends = each, np.minimum(each + 2.0**-HALVINGS, 1.0)
    reached, sure = (_rejected(end, low, s, size, a, row) for end in ends)
    some = reached & ~sure  # no step is longer than that
    at, cell = np.unique(row[some], return_inverse=True)
    first = _next_step(each[at], low[at], size[at], a[at])
    reached[some] = _rejected(first, low[at], s[some], size[at], a[at], cell)
    return reached


def _around(p: Floats, n: Floats, a: Floats) -> tuple[Floats, Floats]:
    """Counts between which the largest is with `P(B ≥ k) ≥ α`. A normal count, corrected for its skewness, mostly is
    off by no more than is allowed for; where it is off by more, all counts."""
    z = -special.ndtri(a)
    k = np.rint(n * p + z * np.sqrt(n * p * (1 - p)) + (1 - 2 * p) * (z**2 - 1) / 6)
    off = 1 + np.ceil(z**2 / 6)
    low, above = np.clip(k - off, 0.0, n), np.clip(k + off + 1, 0.0, n)
    return np.where(_is_count(low, p, n, a), low, 0.0), np.where(_is_count(above, p, n, a), n, above - 1)


def _is_count(k: Floats, p: Floats, n: Floats, a: Floats) -> NDArray[np.bool_]:
    """Is `P(B ≥ k) ≥ α`, or k nothing?"""
    return np.asarray((special.betainc(np.maximum(k, 1.0), n - k + 1, p) >= a) | (k < 1))


def _fits(k: Floats, s: Floats, n: Floats, a: Floats) -> NDArray[np.bool_]:
    """Is the bound of Clopper and Pearson for k, or for 1, rejected by k?"""
    k = np.maximum(k, 1.0)
    return np.asarray(_risk(k, s, n, clopper_pearson_lower(k, n, a)) <= a)


def _next_step(p: Floats, k: Floats, n: Floats, a: Floats) -> Floats:
    """The first step of the halving from p on, between the bounds for k and k + 1."""
    below, above = _cell(k, n, a)
    step = np.ldexp(above - below, -HALVINGS)
    steps = np.ceil(np.divide(p - OFF - below, step, out=np.zeros_like(p), where=step > 0))
    return np.asarray(np.maximum(p, np.minimum(below + steps * step, above)))


def _cell(k: Floats, n: Floats, a: Floats) -> tuple[Floats, Floats]:
    """The bounds of Clopper and Pearson for k and k + 1."""
    return clopper_pearson_lower(k, n, a), clopper_pearson_lower(np.minimum(k + 1, n), n, a)


def _rejected(p: Floats, k: Floats, s: Floats, n: Floats, a: Floats, row: Any = ...) -> NDArray[np.bool_]:
    """Is p rejected by k or by k + 1? Of each sum they are those in the row that is named, if any is."""
    by_end = [_risk(np.maximum(end, 1.0), s, n, p, row) <= a[row] for end in (k, np.minimum(k + 1, n))]
    return np.asarray(by_end[0] | by_end[1])


def _risk(k: Floats, s: Floats, n: Floats, p: Floats, row: Any = ...) -> Floats:
    """`E(B − t)₊ / (s − t)` for `t = k − 1`, which is `(P(B ≥ k) (np − t) + k (1 − p) P(B = k)) / (s − t)`; 1 where t
    is not below s."""
    log_mass = special.xlogy(k, p) + special.xlog1py(n - k, -p) - np.log1p(n) - special.betaln(k + 1, n - k + 1)
    tail = special.betainc(k, n - k + 1, p)
    above = np.asarray(tail * (n * p - k + 1) + k * (1 - p) * np.exp(log_mass))[row]
    room = s - k[row] + 1
    return np.asarray(np.divide(above, room, out=np.ones_like(above), where=room > 0))


def _checked(total: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """The sum, n and what is left of α."""
    s, n = np.asarray(total, dtype=np.float64), np.asarray(n, dtype=np.float64)
    if not np.all((n >= 1) & (n == np.floor(n)) & (s >= 0) & (s <= n)):
        raise InputError("a sum of n values in [0, 1] lies between 0 and n, a whole number of at least 1.")
    s, n, a = np.broadcast_arrays(s, n, check_alpha(alpha))
    return s, n, a / (1 + ROUNDING * (1_000 + n))
