"""One-sided Clopper-Pearson bounds (Clopper and Pearson, 1934) on a binomial probability."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from smoothcert.checks import check_alpha
from smoothcert.errors import InputError

Floats = NDArray[np.float64]
ROUNDING = 1e-6
"""Relative, far above what bounds and levels are off by."""


def clopper_pearson_lower(k: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> Floats:
    """The p with `P(Bin(n, p) ≥ k) = α`, or 0 where k = 0: `P(bound > true p) ≤ α`.

    >>> round(float(clopper_pearson_lower(990, 1000, 0.001)), 6)
    0.976036
    """
    k, n, a = _counts(k, n, alpha)
    p = _beta_quantile(np.maximum(k, 1), n - k + 1, a, special.betaincinv, special.betainc)
    return np.where(k == 0, 0.0, np.nextafter(p, 0.0))


def clopper_pearson_upper(k: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> Floats:
    """The p with `P(Bin(n, p) ≤ k) = α`, or 1 where k = n: `P(bound < true p) ≤ α`.

    >>> round(float(clopper_pearson_upper(10, 1000, 0.001)), 6)
    0.023964
    """
    k, n, a = _counts(k, n, alpha)
    q = _beta_quantile(k + 1, np.maximum(n - k, 1), a, special.betainccinv, special.betaincc)
    return np.where(k == n, 1.0, np.nextafter(q, 1.0))


def lower_quantile(k: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> Floats:
    """`Φ⁻¹(clopper_pearson_lower(k, n, α))`, taken from the smaller tail so that p near 1 loses no digits."""
    k, n, a = _counts(k, n, alpha)
    p, q = clopper_pearson_lower(k, n, a), clopper_pearson_upper(n - k, n, a)
    quantile: Floats = np.where(p < q, special.ndtri(p), -special.ndtri(q))
    return quantile


def upper_quantile(k: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> Floats:
    """`Φ⁻¹(clopper_pearson_upper(k, n, α))`."""
    return -lower_quantile(np.asarray(n) - np.asarray(k), n, alpha)


def may_exceed(k: ArrayLike, n: ArrayLike, z: float, alpha: ArrayLike) -> NDArray[np.bool_]:
    """Is `lower_quantile(k, n, α)` at least z ≥ 0, but for rounding in favour of it? In a microsecond each."""
    k, n, a = _counts(k, n, alpha)
    tail = special.betaincc(n - k + 1, np.maximum(k, 1), special.ndtr(-z * (1 - ROUNDING)))
    return np.asarray((k > 0) & (tail <= a * (1 + ROUNDING)))


def _beta_quantile(a: Floats, b: Floats, level: Floats, inverse: np.ufunc, tail: np.ufunc) -> Floats:
    """The p with tail(a, b, p) = level: SciPy's inverse, which is off by up to 1e-10, and two Newton steps.

    Where the density is too small for a float, so is the step.
    """
    p: Floats = inverse(a, b, level)
    sign = 1 if tail is special.betainc else -1
    for _ in range(2):
        log_density = special.xlogy(a - 1, p) + special.xlog1py(b - 1, -p) - special.betaln(a, b)
        density = np.exp(log_density)
        p = p - sign * np.divide(tail(a, b, p) - level, density, out=np.zeros_like(p), where=density > 0)
    return p


def _counts(k: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> tuple[Floats, Floats, Floats]:
    k, n = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    if not np.all((n >= 1) & (k >= 0) & (k <= n) & (k == np.floor(k)) & (n == np.floor(n))):
        raise InputError("counts must be whole numbers with 0 <= k <= n and n >= 1.")
    return k, n, check_alpha(alpha)
