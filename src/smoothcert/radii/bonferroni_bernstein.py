"""The paper's own setting for soft votes: all c empirical Bernstein bounds at once, each at α/c."""

from __future__ import annotations

import numpy as np

from smoothcert.bounds.means import empirical_bernstein_lower, empirical_bernstein_upper
from smoothcert.bounds.soft import HALF_A_UNIT, Floats, SoftVotes, moments
from smoothcert.radii.gaussian import mult
from smoothcert.radii.lipschitz import mult_lipschitz


def bonferroni_bernstein(
    selection: SoftVotes, estimation: SoftVotes, alpha: float, sigma: float, lipschitz: Floats
) -> Floats:
    """Soft votes: every class bounded by itself (empirical Bernstein), the risk divided by the number of classes.

    `R_mult`, or with a constant the larger of it and `R_multiLip` at ρ = 0, of L₁ and the largest U_j (the paper's
    Sections 2.5 and 3.3). Which of the two is larger depends on the bounds: `R_multiLip` for L₁ ≥ ½ ≥ U_j, but below ½
    it can even be negative. Taking the larger costs no α: where the bounds hold, both radii are true.
    """
    rows, top = np.arange(len(selection.sums)), selection.candidates
    sample, level = moments(estimation), alpha / selection.sums.shape[1]
    p1 = empirical_bernstein_lower(sample.mean, sample.variance, sample.n, level)[rows, top] - HALF_A_UNIT
    upper = empirical_bernstein_upper(sample.mean, sample.variance, sample.n, level) + HALF_A_UNIT
    upper[rows, top] = 0.0
    p2 = upper.max(axis=1)
    lower, largest = np.clip(p1, 0, 1), np.clip(p2, 0, 1)
    steepest = lipschitz.max(axis=1)
    radii = np.maximum(mult(lower, largest, sigma), mult_lipschitz(lower, largest, sigma, steepest))
    return np.where(p1 > p2, radii, 0.0)
