"""The radius of a Lipschitz network without noise (Tsuzuku, Sato and Sugiyama, 2018)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.errors import InputError
from smoothcert.radii.gaussian import Floats
from smoothcert.radii.lipschitz import constants


def margin(margin: ArrayLike, lipschitz: ArrayLike) -> Floats:
    """`R = margin / (√2 L)`, the margin being the top logit minus the next, L the ℓ2 constant of the logits.

    >>> round(float(margin(2.0, 4.0)), 6)
    0.353553
    """
    m = np.asarray(margin, dtype=np.float64)
    if np.isnan(m).any():
        raise InputError("margins must be numbers, not NaN.")
    return np.asarray(m / (np.sqrt(2.0) * constants(lipschitz)))
