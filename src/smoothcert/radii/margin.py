"""The radius of a Lipschitz network without noise (Tsuzuku, Sato and Sugiyama, 2018)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.errors import InputError
from smoothcert.radii.gaussian import Floats
from smoothcert.radii.lipschitz import constants

ROUNDED_DOWN = 1 - 2**-50


def margin(margin: ArrayLike, lipschitz: ArrayLike) -> Floats:
    """`R = margin / (√2 L)`, the margin being the top logit minus the next, L the ℓ2 constant of the logits.

    >>> round(float(margin(2.0, 4.0)), 6)
    0.353553
    """
    m = np.asarray(margin, dtype=np.float64)
    if np.isnan(m).any():
        raise InputError("margins must be numbers, not NaN.")
    return np.asarray(m / (np.sqrt(2.0) * constants(lipschitz)))


def margins(
    scores: ArrayLike, top: ArrayLike, pairs: ArrayLike, allowance: ArrayLike = 0.0, growth: float = 0.0
) -> Floats:
    """`R = min_j (f_k − f_j − 2A) / (K_kj + 2B)` for scores (m, c), k the class of each row; 0 where it is negative.

    `pairs` (c, c) are the constants K_kj of `f_k − f_j`. A, the allowance, is what each score may be wrong by at its
    own input, and B, the growth, how much more for each unit of distance: the margin is above both within R.

    >>> margins([[3.0, 1.0, 0.0]], [0], [[0.0, 2.0, 4.0]] * 3).round(6).tolist()
    [0.75]
    """
    f, k, steep = np.asarray(scores, dtype=np.float64), np.asarray(top), np.asarray(pairs, dtype=np.float64)
    rows, less = np.arange(len(f)), 2 * np.broadcast_to(np.asarray(allowance, dtype=np.float64), k.shape)
    gaps = f[rows, k][:, None] - f - less[:, None]
    gaps[rows, k] = np.inf
    if not np.isfinite(growth):
        return np.zeros(len(f))
    with np.errstate(divide="ignore", invalid="ignore"):
        radii = np.where(gaps > 0, ROUNDED_DOWN * gaps / (steep[k] + 2 * growth), 0.0)
    return np.asarray(radii.min(axis=1))
