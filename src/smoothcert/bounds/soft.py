"""Shares of a vote: their means, and one-sided bounds on them.

Class k gets the share `F_k = τ_k(f(x + noise))` of a draw's vote. For the candidate and one rival j,
`W = F_1 − b F_j` lies in [−b, 1], and b is fixed on the selection sample. `radii.soft` makes radii of bounds on E W.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.means import betting_moments_lower, empirical_bernstein_lower, hoeffding_lower
from smoothcert.bounds.method import Counts
from smoothcert.sampling.blocks import UNIT

Floats = NDArray[np.float64]
HALF_A_UNIT = 0.5 / UNIT  # by how much a share may have been rounded


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

    def rows(self, some: slice) -> SoftVotes:
        """Those of some inputs, not copied."""
        return SoftVotes(self.n[some], self.sums[some], self.squares[some], self.products[some])

    @property
    def candidates(self) -> Counts:
        """The class with the largest mean; ties go to the lowest id."""
        top: Counts = self.sums.argmax(axis=1)
        return top

    @property
    def totals(self) -> Floats:
        """The votes of each class, shares added up."""
        return self.sums / UNIT


@dataclass(frozen=True)
class Sample:
    """Mean and unbiased variance of n values in [0, 1]."""

    mean: Floats
    variance: Floats
    n: Floats


Interval = Callable[[Sample, Sample, float], Floats]
"""(a guess from the selection sample, the estimation sample, α) -> a lower bound on the mean."""


def hoeffding(guess: Sample, sample: Sample, alpha: float) -> Floats:
    """Soft votes: the leading class against each rival as a pair at the full risk, by Hoeffding's bound."""
    return hoeffding_lower(sample.mean, sample.n, alpha)


def bernstein(guess: Sample, sample: Sample, alpha: float) -> Floats:
    """Soft votes: the leading class against each rival as a pair at the full risk, by the empirical Bernstein bound."""
    return empirical_bernstein_lower(sample.mean, sample.variance, sample.n, alpha)


def betting(guess: Sample, sample: Sample, alpha: float) -> Floats:
    """Soft votes: the leading class against each rival as a pair at the full risk, by bets at fixed stakes."""
    return betting_moments_lower(sample.mean, sample.variance, sample.n, alpha, guess.mean, guess.variance)


INTERVALS: dict[str, Interval] = {"betting": betting, "bernstein": bernstein, "hoeffding": hoeffding}


def moments(votes: SoftVotes) -> Sample:
    """Each class's mean share and its variance."""
    n = votes.n[:, None]
    mean = votes.sums / (n * UNIT)
    return Sample(mean, _variance(votes.squares / UNIT**2 - n * mean**2, n), np.broadcast_to(n, mean.shape))


def of_pairs(votes: SoftVotes, top: Counts, b: Floats) -> Sample:
    """Of `(W + b) / (1 + b)`, for every rival."""
    rows, n = np.arange(len(top)), votes.n[:, None]
    each = moments(votes)
    mean, variance = each.mean, each.variance
    m1, v1 = mean[rows, top][:, None], variance[rows, top][:, None]
    covariance = (votes.products / UNIT**2 - n * m1 * mean) / np.maximum(n - 1, 1)
    squares = (v1 - 2 * b * covariance + b**2 * variance) / (1 + b) ** 2 * np.maximum(n - 1, 1)
    return Sample((m1 - b * mean + b) / (1 + b), _variance(squares, n), np.broadcast_to(n, mean.shape))


def _variance(squares: Floats, n: Counts) -> Floats:
    """The unbiased variance from the sum of squares about the mean, within what values in [0, 1] can have."""
    return np.clip(squares / np.maximum(n - 1, 1), 0.0, n / (4 * np.maximum(n - 1, 1)))


def cautious(variance: Floats, n: Counts | Floats) -> Floats:
    """The variance as if one more draw had been as far off as can be: few draws may not have met what is rare."""
    return (n * variance + 0.25) / (n + 1)
