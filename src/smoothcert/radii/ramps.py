"""Margin votes to radii: the exact radius of a ramp against every rival."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smoothcert.radii.lipschitz import exact_mono

Floats = NDArray[np.float64]
FLATTEST, STEEPEST = 1e-12, 1e12
"""Lσ for which the exact radius is known to all digits; a flatter vote is as flat as this, a steeper one jumps."""


def ramp_radii(bounds: Floats, top: NDArray[np.int64], sigma: float, lipschitz: Floats) -> Floats:
    """`min_j T(p_j)` over the rivals j of each input's class, T the exact radius of a vote with constant
    `lipschitz[i, j]` and a mean of at least `bounds[i, j]`; 0 proves nothing.

    It is too large only if the bound of one rival, the worst, is wrong (Berger's intersection-union test).
    """
    steep = np.maximum(lipschitz, FLATTEST / sigma)
    radii = exact_mono(bounds, sigma, np.where(steep * sigma > STEEPEST, np.inf, steep))
    radii[np.arange(len(top)), top] = np.inf
    return np.asarray(np.maximum(radii.min(axis=1), 0.0))
