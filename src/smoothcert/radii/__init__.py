"""Probabilities to radii: pure functions of numbers, arrays broadcast, float64.

`mono` and `mult` hold for every classifier; the Lipschitz radii hold when L bounds the constant of each
component of the soft classifier on all of R^d. With an estimated L they are estimates.
"""

from smoothcert.radii.gaussian import mono, mult
from smoothcert.radii.lipschitz import (
    exact_mono,
    exact_mult,
    mono_lipschitz,
    mult_lipschitz,
    s0,
    smoothed_lipschitz,
)
from smoothcert.radii.margin import margin, margins

__all__ = [
    "exact_mono",
    "exact_mult",
    "margin",
    "margins",
    "mono",
    "mono_lipschitz",
    "mult",
    "mult_lipschitz",
    "s0",
    "smoothed_lipschitz",
]
