"""Soft votes to radii: the pair argument with bounds on means.

Class k gets the share `F_k = τ_k(f(x + noise))` of a draw's vote. For the candidate and one rival j,
`W = F_1 − b F_j` lies in [−b, 1]. With b fixed on the selection sample, one one-sided bound at the full α on E W gives
a radius for the pair (`radii.pair`), and the least over all rivals holds with probability at least 1 − α: it is wrong
only if the bound of the true runner-up is (Berger's intersection-union test). The number of classes costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.margins import Counts
from smoothcert.bounds.means import betting_moments_lower, empirical_bernstein_lower, hoeffding_lower
from smoothcert.radii.pair import holds, pair, slope

Floats = NDArray[np.float64]

UNIT = 2**20
"""Shares are kept as whole multiples of 1/UNIT: sums of integers do not depend on the order of adding."""

ROUNDING = 0.5 / UNIT
MOST_DRAWS = 2**63 // UNIT**2 - 1


@dataclass(frozen=True)
class SoftVotes:
    """Over the n draws of each of m inputs, with k = UNIT · F rounded: Σ k_j, Σ k_j², Σ k_candidate k_j, each (m, c).

    The products of a selection sample are not known, since its votes choose the candidate.
    """

    n: Counts
    sums: Counts
    squares: Counts
    products: Counts

    @classmethod
    def zeros(cls, inputs: int, num_classes: int) -> SoftVotes:
        """No draws yet; `add` changes the arrays."""
        return cls(np.zeros(inputs, dtype=np.int64), *np.zeros((3, inputs, num_classes), dtype=np.int64))

    def add(self, row: int, n: int, sums: Counts, squares: Counts, products: Counts) -> None:
        """Further draws of an input."""
        self.n[row] += n
        self.sums[row] += sums
        self.squares[row] += squares
        self.products[row] += products

    def rows(self, keep: Counts) -> SoftVotes:
        """Those of some inputs."""
        return SoftVotes(self.n[keep], self.sums[keep], self.squares[keep], self.products[keep])

    @property
    def candidates(self) -> Counts:
        """The class with the largest mean; ties go to the lowest id."""
        top: Counts = self.sums.argmax(axis=1)
        return top


@dataclass(frozen=True)
class Sample:
    """Mean and unbiased variance of n values in [0, 1]."""

    mean: Floats
    variance: Floats
    n: Floats


Interval = Callable[[Sample, Sample, float], Floats]
"""(a guess from the selection sample, the estimation sample, α) -> a lower bound on the mean."""

SoftMethod = Callable[[SoftVotes, SoftVotes, float, float, Floats], Floats]
"""(selection, estimation, α, σ, L of each component or ∞, (m,)) -> radii (m,); 0 proves nothing."""


def hoeffding(guess: Sample, sample: Sample, alpha: float) -> Floats:
    """Soft votes: the leading class against each rival as a pair at the full risk, by Hoeffding's bound."""
    return hoeffding_lower(sample.mean, sample.n, alpha)


def bernstein(guess: Sample, sample: Sample, alpha: float) -> Floats:
    """Soft votes: the leading class against each rival as a pair at the full risk, by the empirical Bernstein bound."""
    return empirical_bernstein_lower(sample.mean, sample.variance, sample.n, alpha)


def betting(guess: Sample, sample: Sample, alpha: float) -> Floats:
    """Soft votes: the leading class against each rival as a pair at the full risk, by bets at fixed stakes."""
    return betting_moments_lower(sample.mean, sample.variance, sample.n, alpha, guess.mean, guess.variance)


def pair_radii(
    interval: Interval, selection: SoftVotes, estimation: SoftVotes, alpha: float, sigma: float, lipschitz: Floats
) -> Floats:
    """The least radius over all rivals, each from one bound at level α.

    b is the slope of the curve of equal radius where the interval would put the two means if the estimation sample
    were like the selection sample. The rounding of the shares is taken off the bound.
    """
    rows, top = np.arange(len(selection.sums)), selection.candidates
    mean, variance = _moments(selection)
    expected = Sample(
        mean, _cautious(variance, selection.n[:, None]), np.broadcast_to(estimation.n[:, None], mean.shape)
    )
    flipped = Sample(1 - mean, expected.variance, expected.n)
    upper = 1 - interval(flipped, flipped, alpha)
    lower = interval(expected, expected, alpha)[rows, top][:, None]
    lip = np.asarray(lipschitz, dtype=np.float64)[:, None]
    b = slope(lower, upper, sigma, lip)

    m1, deviation1 = mean[rows, top][:, None], np.sqrt(variance[rows, top])[:, None]
    spread = ((deviation1 + b * np.sqrt(variance)) / (1 + b)) ** 2
    guess = Sample((m1 - b * mean + b) / (1 + b), _cautious(spread, selection.n[:, None]), expected.n)
    bound = (1 + b) * (interval(guess, _pair(estimation, top, b), alpha) - ROUNDING) - b

    upper[rows, top] = -1.0
    hardest = upper.argmax(axis=1)
    radii = pair(bound[rows, hardest], b[rows, hardest], sigma, lip[:, 0])
    some = np.flatnonzero(radii > 0)
    if not some.size:
        return radii
    fails = ~holds(radii[some, None], bound[some], b[some], sigma, lip[some])
    fails[np.arange(some.size), top[some]] = False
    at, j = np.nonzero(fails)
    np.minimum.at(radii, some[at], pair(bound[some[at], j], b[some[at], j], sigma, lip[some[at], 0]))
    return radii


def moments(votes: SoftVotes) -> Sample:
    """Each class's mean share and its variance."""
    mean, variance = _moments(votes)
    return Sample(mean, variance, np.broadcast_to(votes.n[:, None], mean.shape).astype(np.float64))


INTERVALS: dict[str, Interval] = {"betting": betting, "bernstein": bernstein, "hoeffding": hoeffding}
PAIR_METHODS: dict[str, SoftMethod] = {name: partial(pair_radii, interval) for name, interval in INTERVALS.items()}


def _moments(votes: SoftVotes) -> tuple[Floats, Floats]:
    n = votes.n[:, None]
    mean = votes.sums / (n * UNIT)
    return mean, _variance(votes.squares / UNIT**2 - n * mean**2, n)


def _pair(votes: SoftVotes, top: Counts, b: Floats) -> Sample:
    """Of `(W + b) / (1 + b)`, for every rival."""
    rows, n = np.arange(len(top)), votes.n[:, None]
    mean, variance = _moments(votes)
    m1, v1 = mean[rows, top][:, None], variance[rows, top][:, None]
    covariance = (votes.products / UNIT**2 - n * m1 * mean) / np.maximum(n - 1, 1)
    squares = (v1 - 2 * b * covariance + b**2 * variance) / (1 + b) ** 2 * np.maximum(n - 1, 1)
    return Sample((m1 - b * mean + b) / (1 + b), _variance(squares, n), np.broadcast_to(n, mean.shape))


def _variance(squares: Floats, n: Counts) -> Floats:
    """The unbiased variance from the sum of squares about the mean, within what values in [0, 1] can have."""
    return np.clip(squares / np.maximum(n - 1, 1), 0.0, n / (4 * np.maximum(n - 1, 1)))


def _cautious(variance: Floats, n: Counts) -> Floats:
    """The variance as if one more draw had been as far off as can be: few draws may not have met what is rare."""
    return (n * variance + 0.25) / (n + 1)
