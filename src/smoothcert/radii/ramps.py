"""Margin votes to radii: the exact radius of a ramp against every rival."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smoothcert.radii.lipschitz import exact_mono

Floats = NDArray[np.float64]
FLATTEST, STEEPEST = 1e-12, 1e12
"""Lσ for which the exact radius is known to all digits; a flatter vote is as flat as this, a steeper one jumps."""


def ramp_radius(p: Floats, sigma: float, lipschitz: Floats) -> Floats:
    """The exact radius of a vote with this constant and a mean of at least p."""
    steep = np.maximum(lipschitz, FLATTEST / sigma)
    return exact_mono(p, sigma, np.where(steep * sigma > STEEPEST, np.inf, steep))


def ramp_radii(bounds: Floats, top: NDArray[np.int64], sigma: float, lipschitz: Floats) -> Floats:
    """`min_j T(p_j)` over the rivals j of each input's class, T the exact radius; 0 proves nothing.

    It is too large only if the bound of one rival, the worst, is wrong (Berger's intersection-union test).
    """
    radii = ramp_radius(bounds, sigma, lipschitz)
    radii[np.arange(len(top)), top] = np.inf
    return np.asarray(np.maximum(radii.min(axis=1), 0.0))
