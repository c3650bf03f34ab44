"""The leading class against all others taken as one (Cohen et al., 2019)."""

from __future__ import annotations

from smoothcert.bounds.binomial import lower_quantile
from smoothcert.bounds.method import Counts, MarginBound, split


def mono(selections: Counts, estimations: Counts, alpha: float) -> MarginBound:
    """`t = 2 Φ⁻¹(L)`, L the Clopper-Pearson lower bound of p₁ at α: `p₂ ≤ 1 − p₁` gives R_mono = σ Φ⁻¹(L).

    Positive exactly where L > ½.
    """
    n1, _, n = split(selections, estimations)
    return MarginBound(2 * lower_quantile(n1, n, alpha))
