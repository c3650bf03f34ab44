"""The radii of plain randomized smoothing (Cohen, Rosenfeld and Kolter, 2019)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from smoothcert.errors import InputError

Floats = NDArray[np.float64]


def mono(p1: ArrayLike, sigma: ArrayLike) -> Floats:
    """`R_mono = σ Φ⁻¹(p1)`: the smoothed top class stays on top, all rivals counted as one.

    Below p1 = ½ the value is negative and certifies nothing.

    >>> round(float(mono(0.99, 0.5)), 6)
    1.163174
    """
    return np.asarray(sigmas(sigma) * special.ndtri(probabilities(p1)))


def mult(p1: ArrayLike, p2: ArrayLike, sigma: ArrayLike) -> Floats:
    """`R_mult = σ/2 (Φ⁻¹(p1) − Φ⁻¹(p2))` for the top class and its runner-up; 0 where p1 = p2.

    >>> round(float(mult(0.4, 0.1, 0.5)), 6)
    0.257051
    """
    a, b, s = probabilities(p1), probabilities(p2), sigmas(sigma)
    with np.errstate(invalid="ignore"):  # Φ⁻¹ is infinite at 0 and 1
        return np.where(a == b, 0.0, s * (special.ndtri(a) - special.ndtri(b)) / 2)


def probabilities(p: ArrayLike) -> Floats:
    """p as float64, refused outside [0, 1]."""
    a = np.asarray(p, dtype=np.float64)
    if not np.all((a >= 0) & (a <= 1)):
        raise InputError("probabilities must lie between 0 and 1.")
    return a


def sigmas(sigma: ArrayLike) -> Floats:
    """σ as float64, refused unless positive and finite."""
    s = np.asarray(sigma, dtype=np.float64)
    if not np.all((s > 0) & np.isfinite(s)):
        raise InputError("sigma must be positive and finite.")
    return s
