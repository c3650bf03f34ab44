"""Soft votes to radii: the pair argument with bounds on means.

One one-sided bound at the full α on E W, `W = F_1 − b F_j` (`bounds.soft`), gives a radius for the pair (`radii.pair`).
The least over all rivals holds with probability at least 1 − α: it is wrong only if the bound of the true runner-up is
(Berger's intersection-union test). The number of classes costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from smoothcert.bounds.soft import (
    HALF_A_UNIT,
    INTERVALS,
    Floats,
    Interval,
    Sample,
    SoftVotes,
    cautious,
    moments,
    of_pairs,
)
from smoothcert.radii.bonferroni_bernstein import bonferroni_bernstein
from smoothcert.radii.pair import holds, least_pair, pair, slope

SoftMethod = Callable[[SoftVotes, SoftVotes, float, float, Floats], Floats]
"""(selection, estimation, α, σ, L of each class's share or ∞, (m, c)) -> radii (m,); 0 proves nothing."""


def pair_radii(
    interval: Interval, selection: SoftVotes, estimation: SoftVotes, alpha: float, sigma: float, lipschitz: Floats
) -> Floats:
    """The least radius over all rivals, each from one bound at level α.

    b is the slope of the curve of equal radius where the interval would put the two means if the estimation sample
    were like the selection sample. The rounding of the shares is taken off the bound. L is the larger one of the pair.
    """
    rows, top = np.arange(len(selection.sums)), selection.candidates
    each, n = moments(selection), estimation.n[:, None]
    mean, variance = each.mean, each.variance
    most = n / (4 * np.maximum(n - 1, 1))  # few selection draws may vary more than n draws can
    expected = Sample(mean, np.minimum(cautious(variance, selection.n[:, None]), most), np.broadcast_to(n, mean.shape))
    flipped = Sample(1 - mean, expected.variance, expected.n)
    upper = 1 - interval(flipped, flipped, alpha)
    lower = interval(expected, expected, alpha)[rows, top][:, None]
    lip = np.maximum(lipschitz, lipschitz[rows, top][:, None])
    b = slope(lower, upper, sigma, lip)

    m1, deviation1 = mean[rows, top][:, None], np.sqrt(variance[rows, top])[:, None]
    spread = ((deviation1 + b * np.sqrt(variance)) / (1 + b)) ** 2
    guess = Sample((m1 - b * mean + b) / (1 + b), np.minimum(cautious(spread, selection.n[:, None]), most), expected.n)
    bound = (1 + b) * (interval(guess, of_pairs(estimation, top, b), alpha) - HALF_A_UNIT) - b

    upper[rows, top] = -1.0
    hardest = upper.argmax(axis=1)
    radii = pair(bound[rows, hardest], b[rows, hardest], sigma, lip[rows, hardest])
    some = np.flatnonzero(radii > 0)
    if not some.size:
        return radii
    fails = ~holds(radii[some, None], bound[some], b[some], sigma, lip[some])
    fails[np.arange(some.size), top[some]] = False
    at, j = np.nonzero(fails)
    rivals = some[at], j
    return np.minimum(radii, least_pair(some[at], len(radii), bound[rivals], b[rivals], sigma, lip[rivals]))


SOFT_METHODS: dict[str, SoftMethod] = {
    **{name: partial(pair_radii, interval) for name, interval in INTERVALS.items()},
    "bonferroni-bernstein": bonferroni_bernstein,
}
"""The methods for soft votes."""
