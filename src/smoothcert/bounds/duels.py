"""The leading class against each rival by their scores, every draw a duel with each of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.binomial import lower_quantile
from smoothcert.bounds.method import Counts


def duels(lost: Counts, n: Counts, alpha: float) -> NDArray[np.float64]:
    """`min_j Φ⁻¹(L_j)`, L_j the Clopper-Pearson lower bound at α of P_kj, the chance that k wins its duel with j.

    `lost` (m, c) are the duels that the candidate k of each input lost in n draws, 0 against itself. It is fixed
    before these draws, so only the bound of the true hardest rival j* = argmin_j P_kj has to hold: with probability
    at least 1 − α the value is at most Φ⁻¹(P_kj*), whatever the number of classes (Berger's intersection-union test).
    The duels have all draws in common, hence the hardest rival that was met is the one with most duels won.
    """
    return lower_quantile(n - lost.max(axis=1), n, alpha)
