"""Every class bounded by itself, the risk divided by the number of classes."""

from __future__ import annotations

from smoothcert.bounds.binomial import lower_quantile, upper_quantile
from smoothcert.bounds.method import Counts, MarginBound, split


def bonferroni(selections: Counts, estimations: Counts, alpha: float) -> MarginBound:
    """`t = Φ⁻¹(L₁) − Φ⁻¹(max_j U_j)` with every Clopper-Pearson bound at α/c (the paper's Section 2.5).

    U grows with the count, so the largest bound is that of the largest rival count.
    """
    n1, nj, n = split(selections, estimations)
    level = alpha / selections.shape[1]
    return MarginBound(lower_quantile(n1, n, level) - upper_quantile(nj, n, level))
