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
from smoothcert.bounds.spread import CAP, HALVINGS, SHARES, STAKES, spread_lower, spread_reaches

Floats = NDArray[np.float64]
LEAST = 2.0**-HALVINGS
"""The least mean that bets prove."""


def ramps(selection: Floats, estimation: Floats, alpha: float) -> Floats:
    """A lower bound on the mean of each row of `estimation`: votes that are spread on the points of a grid, (rows,
    B + 1). The same row of `selection` says what they are like."""
    n, guess = estimation.sum(axis=-1), _variance(selection)
    bets, bound = _bets_are_better(selection, guess, n, alpha), np.empty(n.shape)
    bound[bets] = spread_lower(estimation[bets], alpha, guess[bets])
    bound[~bets] = comparison_lower(_total(estimation[~bets]), n[~bets], alpha)
    return bound


def reach(p: Floats, selection: Floats, estimation: Floats, alpha: float) -> NDArray[np.bool_]:
    """Is `ramps` at least p, which is positive? One look at the bound that was chosen instead of a search."""
    n, guess = estimation.sum(axis=-1), _variance(selection)
    bets, reached = _bets_are_better(selection, guess, n, alpha), np.empty(n.shape, dtype=bool)
    reached[bets] = spread_reaches(p[bets], estimation[bets], alpha, guess[bets])
    reached[~bets] = comparison_reaches(p[~bets], _total(estimation[~bets]), n[~bets], alpha)
    return reached


def expected(selection: Floats, n: int, alpha: float) -> Floats:
    """What would come of n votes like those of the selection."""
    like = _like(selection, np.full(selection.shape[:-1], float(n)))
    by_comparison = comparison_lower(np.minimum(_total(like), n), n, alpha)
    return np.maximum(spread_lower(like, alpha, _variance(selection)), by_comparison)


def _bets_are_better(selection: Floats, guess: Floats, n: Floats, alpha: float) -> NDArray[np.bool_]:
    """Would bets make more than the comparison of so many votes like those of the selection? An estimate of both, since
    everybody is asked: whoever makes up votes can have nobody's clear.

    With mean x and `g(m) = E log(1 + λ(X − m))` the largest share a of the capital, which bets λ, wins 1/α where
    `n g(m) ≥ log(1/aα)`; near x, g is about `g(x) + λ(x − m)`. The comparison rejects what is so far from x: of votes
    that vary, m with `n KL(x, m) ≥ c²/2`, since in the limit it is the mean of the worst α of a normal, `c = φ(z_α)/α`,
    that n deviates by; of votes that are all whole, m with `n KL(1, m) = n log(1/m) ≥ log(1/α)`. Between the two there
    are as many steps as the sum has variance.
    """
    x, goal, main = _total(selection) / selection.sum(axis=-1), np.log(1 / alpha), SHARES.argmax()
    bet = np.minimum(STAKES[main] * np.sqrt(2 * goal / (n * guess)), CAP / np.maximum(x, LEAST))[..., None]
    won = (selection * np.log1p(bet * (_points(selection) - x[..., None]))).sum(axis=-1) / selection.sum(axis=-1)
    m = x - ((goal - np.log(SHARES[main])) / n - won) / bet[..., 0]
    normal = np.exp(2 * goal - special.ndtri(alpha) ** 2) / (4 * np.pi)
    needed = normal + (goal - normal) / (1 + n * x * (1 - x))
    known = np.clip(m, LEAST, 1.0)
    apart = special.rel_entr(x, known) + special.rel_entr(1 - x, 1 - known)
    return np.asarray((m > LEAST) & (n * apart < needed))


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
