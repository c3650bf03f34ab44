"""The class of the smoothed classifier, or an abstention (Hung and Fithian, 2019, as in Cohen et al., 2019)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from smoothcert.bounds.method import Counts
from smoothcert.checks import check_alpha

ABSTAIN = -1


def top_class(counts: Counts, alpha: float) -> NDArray[np.int64]:
    """The class with most votes where the two-sided binomial test of the top two counts rejects ½ at α, else -1.

    With A ≥ B the two largest counts, the p-value is `min(1, 2 P(Bin(A + B, ½) ≥ A))`. A wrong class is returned
    with probability at most α.
    """
    check_alpha(alpha)
    top = counts.argmax(axis=1)
    b, a = np.sort(counts, axis=1)[:, -2:].T
    with np.errstate(invalid="ignore"):
        p_value = np.where(a == b, 1.0, 2 * special.betainc(np.maximum(a, 1), b + 1.0, 0.5))
    return np.where(p_value <= alpha, top, ABSTAIN)
