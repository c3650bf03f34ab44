"""Margin votes: the mean vote against each rival at the full risk, by bets or by comparison with a binomial.

Bets are the better where votes vary little, the comparison where most of them are 0 or 1. Which one a rival gets is
decided on the selection sample, so that it costs nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.comparison import comparison_lower
from smoothcert.bounds.soft import cautious
from smoothcert.bounds.spread import spread_lower

Floats = NDArray[np.float64]


def ramps(selection: Floats, estimation: Floats, alpha: float) -> Floats:
    """A lower bound on the mean of each row of `estimation`: votes that are spread on the points of a grid, (rows,
    B + 1). The same row of `selection` says what they are like."""
    n, guess = estimation.sum(axis=-1), _variance(selection)
    by_bets, by_comparison = _expected(selection, guess, n, alpha)
    bets, bound = by_bets > by_comparison, np.empty(n.shape)
    bound[bets] = spread_lower(estimation[bets], alpha, guess[bets])
    bound[~bets] = comparison_lower(_total(estimation[~bets]), n[~bets], alpha)
    return bound


def expected(selection: Floats, n: int, alpha: float) -> Floats:
    """What would come of n votes like those of the selection."""
    sizes = np.full(selection.shape[:-1], float(n))
    return np.maximum(*_expected(selection, _variance(selection), sizes, alpha))


def _expected(selection: Floats, guess: Floats, n: Floats, alpha: float) -> tuple[Floats, Floats]:
    """What bets and the comparison would make of so many votes like those of the selection."""
    like = selection * (n / selection.sum(axis=-1))[..., None]
    return spread_lower(like, alpha, guess), comparison_lower(np.minimum(_total(like), n), n, alpha)


def _total(votes: Floats) -> Floats:
    """Their sum. Points and weights are whole multiples of powers of 2, so that nothing is rounded in a sample."""
    return np.asarray(votes @ _points(votes))


def _variance(selection: Floats) -> Floats:
    n = selection.sum(axis=-1)
    variance = selection @ _points(selection) ** 2 / n - (_total(selection) / n) ** 2
    return cautious(np.maximum(variance, 0.0), n)


def _points(votes: Floats) -> Floats:
    return np.linspace(0.0, 1.0, votes.shape[-1])
