"""A lower bound on the mean of independent variables in [0, 1] from their sum: comparison with a binomial."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from smoothcert.bounds.binomial import clopper_pearson_lower
from smoothcert.checks import check_alpha
from smoothcert.errors import InputError

Floats = NDArray[np.float64]
ROUNDING, HALVINGS = 1e-12, 20
"""The share of α for each value that pays for rounding, and how often the way to the next count is halved."""


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
    s, n, a = np.broadcast_arrays(*_sums(total, n), check_alpha(alpha))
    a = a / (1 + ROUNDING * (1_000 + n))
    low, high = np.zeros(s.shape), np.floor(s)
    while np.any(low < high):
        k = np.ceil((low + high) / 2)
        fits = _risk(np.maximum(k, 1.0), s, n, clopper_pearson_lower(np.maximum(k, 1.0), n, a)) <= a
        low, high = np.where(fits, k, low), np.where(fits, high, np.maximum(k - 1, low))
    ends = low, np.minimum(low + 1, n)
    below, above = (clopper_pearson_lower(end, n, a) for end in ends)
    for _ in range(HALVINGS):
        p = (below + above) / 2
        rejected = np.any([_risk(np.maximum(k, 1.0), s, n, p) <= a for k in ends], axis=0)
        below, above = np.where(rejected, p, below), np.where(rejected, above, p)
    return below


def _risk(k: Floats, s: Floats, n: Floats, p: Floats) -> Floats:
    """`E(B − t)₊ / (s − t)` for `t = k − 1`, which is `(P(B ≥ k) (np − t) + k (1 − p) P(B = k)) / (s − t)`; 1 where t
    is not below s."""
    log_mass = special.xlogy(k, p) + special.xlog1py(n - k, -p) - np.log1p(n) - special.betaln(k + 1, n - k + 1)
    tail = special.betainc(k, n - k + 1, p)
    above = tail * (n * p - k + 1) + k * (1 - p) * np.exp(log_mass)
    room = s - k + 1
    return np.asarray(np.divide(above, room, out=np.ones_like(above), where=room > 0))


def _sums(total: ArrayLike, n: ArrayLike) -> tuple[Floats, Floats]:
    s, n = np.asarray(total, dtype=np.float64), np.asarray(n, dtype=np.float64)
    if not np.all((n >= 1) & (n == np.floor(n)) & (s >= 0) & (s <= n)):
        raise InputError("a sum of n values in [0, 1] lies between 0 and n, a whole number of at least 1.")
    return s, n
