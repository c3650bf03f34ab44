"""The leading class and its strongest rival, each bounded at half of the risk, however many classes there are."""

from __future__ import annotations

from smoothcert.bounds.binomial import lower_quantile, upper_quantile
from smoothcert.bounds.method import Counts, MarginBound, split


def union(selections: Counts, estimations: Counts, alpha: float) -> MarginBound:
    """`t = Φ⁻¹(L₁) − Φ⁻¹(max_j U_j)` with every Clopper-Pearson bound at α/2.

    Valid for any number of classes: outside two events of probability α/2 each, L₁ ≤ p₁ and U_j* ≥ p_j* for the
    true runner-up j*, which is unknown but not random; and max_j U_j ≥ U_j* always (docs/theory.md).
    """
    n1, nj, n = split(selections, estimations)
    return MarginBound(lower_quantile(n1, n, alpha / 2) - upper_quantile(nj, n, alpha / 2))
