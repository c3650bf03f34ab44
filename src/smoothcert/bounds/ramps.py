"""Margin votes: the mean vote against each rival at the full risk, by bets or by comparison with a binomial.

Bets are the better where votes vary little, the comparison where most of them are 0 or 1. Which one a rival gets is
decided on the selection sample alone, so that it costs nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from smoothcert.bounds.comparison import comparison_lower, comparison_reaches
from smoothcert.bounds.soft import cautious
from smoothcert.bounds.spread import CAP, HALVINGS, spread_lower, spread_reaches

Floats = NDArray[np.float64]


def ramps(selection: Floats, estimation: Floats, alpha: float) -> Floats:
    """A lower bound on the mean of each row of `estimation`: votes that are spread on the points of a grid, (rows,
    B + 1). The same row of `selection` says what they are like."""
    n, guess = estimation.sum(axis=-1), _variance(selection)
    bets, bound = _bets_are_better(selection, guess, n, alpha), np.empty(n.shape)
    bound[bets] = spread_lower(estimation[bets], alpha, guess[bets])
    bound[~bets] = comparison_lower(_total(estimation[~bets]), n[~bets], alpha)
    return bound


def reach(p: Floats, selection: Floats, estimation: Floats, alpha: float) -> NDArray[np.bool_]:
    """Is `ramps` at least p, which is positive? One look at each of the two bounds instead of a search; which one it
    is has to be known only where they disagree."""
    n, guess = estimation.sum(axis=-1), _variance(selection)
    bets = spread_reaches(p, estimation, alpha, guess)
    comparison = comparison_reaches(p, _total(estimation), n, alpha)
    apart = bets != comparison
    better = _bets_are_better(selection[apart], guess[apart], n[apart], alpha)
    bets[apart] = np.where(better, bets[apart], comparison[apart])
    return bets


def expected(selection: Floats, n: int, alpha: float) -> Floats:
    """What would come of n votes like those of the selection."""
    like = _like(selection, np.full(selection.shape[:-1], float(n)))
    by_comparison = comparison_lower(np.minimum(_total(like), n), n, alpha)
    return np.maximum(spread_lower(like, alpha, _variance(selection)), by_comparison)


def _bets_are_better(selection: Floats, guess: Floats, n: Floats, alpha: float) -> NDArray[np.bool_]:
    """Would bets make more than the comparison of so many votes like those of the selection?

    Mostly only one of them reaches a point that is likely to lie between them: bets lose about `√(2 log(1/α) v/n)` and
    the comparison, which is at most e times a binomial's tail, about `Φ⁻¹(1 − α/e) √(p(1 − p)/n)`; of whole votes they
    lose `log(1/α)/n`, over CAP and as it is. Where that does not tell, the comparison is asked whether it reaches what
    bets make.
    """
    like = _like(selection, n)
    total = np.minimum(_total(like), n)
    mean, each = total / n, np.log(1 / alpha) / n
    lost_by_bets = np.sqrt(2 * each * guess) + each / CAP
    lost_by_comparison = -special.ndtri(alpha / np.e) * np.sqrt(mean * (1 - mean) / n) + each
    between = np.clip(mean - (lost_by_bets + lost_by_comparison) / 2, 2.0**-HALVINGS, 1.0)
    bets = spread_reaches(between, like, alpha, guess)
    same = bets == comparison_reaches(between, total, n, alpha)
    by_bets = spread_lower(like[same], alpha, guess[same])
    bets[same] = (by_bets > 0) & ~comparison_reaches(by_bets, total[same], n[same], alpha)
    return bets


def _like(selection: Floats, n: Floats) -> Floats:
    """So many votes like those of the selection."""
    return np.asarray(selection * (n / selection.sum(axis=-1))[..., None])


def _total(votes: Floats) -> Floats:
    """Their sum. Points and weights are whole multiples of powers of 2, so that nothing is rounded in a sample."""
    return np.asarray(votes @ _points(votes))


def _variance(selection: Floats) -> Floats:
    n = selection.sum(axis=-1)
    variance = selection @ _points(selection) ** 2 / n - (_total(selection) / n) ** 2
    return cautious(np.maximum(variance, 0.0), n)


def _points(votes: Floats) -> Floats:
    return np.linspace(0.0, 1.0, votes.shape[-1])
