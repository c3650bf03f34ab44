"""A lower bound on the mean of values in [0, 1] that were spread on a grid: bets with stakes fixed beforehand.

A value between two points of the grid `0, 1/B, …, 1` gives its weight to both of them, the nearer one getting more, so
that its mean is kept. Since `log(1 + λ(x − m))` is concave in x, its chord between the two points lies below it: a
capital computed from the weights is never above that of the values themselves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.checks import check_alpha

Floats = NDArray[np.float64]
STAKES = np.array([4.0, 2.0, 1.0, 0.5, 0.25])  # times the best stake if the guess is right
SHARES = np.array([0.03, 0.1, 0.7, 0.12, 0.05])  # of the capital
CAP = 0.9  # no bet risks more of the capital
# Stakes, shares and cap were chosen among nine settings on distributions like those of `benchmarks/margins.py`.
HALVINGS = 40
ROUNDING, ROUNDED = 1e-9, 2.0**-43
"""Of the logarithm of the capital, and of each of the n that are added up, at most 28 and rounded 36 times."""


def spread_lower(weights: ArrayLike, alpha: ArrayLike, variance_guess: ArrayLike) -> Floats:
    """The least m against which bets on n values, spread on a grid with `weights` (…, B + 1), have not won 1/α.

    The capital is divided among `STAKES` times `λ = √(2 ln(1/α) / (n v))`, v a guess of the variance of the spread
    values that does not depend on this sample. Against m a share bets `λ_m = min(λ, CAP/m)` on every value and ends as
    `exp Σ_b weights_b log(1 + λ_m (b/B − m)) ≤ Π_i (1 + λ_m (x_i − m))`, with expectation at most 1 if the mean is at
    most m. So the whole reaches 1/α with probability at most α (Markov). Every factor falls in m: the rejected m are an
    interval from 0, and halving finds its end from below.

    >>> round(float(spread_lower([0, 0, 500, 0, 500], 0.001, 0.0625)), 4)
    0.72
    """
    c, stakes, goal = _game(weights, alpha, variance_guess)
    low = np.zeros(stakes.shape[:-1])
    high = np.ones_like(low)
    for _ in range(HALVINGS):
        m = (low + high) / 2
        rejected = _log_capital(c, stakes, m) >= goal
        low, high = np.where(rejected, m, low), np.where(rejected, high, m)
    return low


def spread_reaches(m: ArrayLike, weights: ArrayLike, alpha: ArrayLike, variance_guess: ArrayLike) -> NDArray[np.bool_]:
    """Is `spread_lower` at least this positive m? One look instead of a search.

    The search ends at the last multiple of 2^−HALVINGS that is rejected: it is at least m where the first one from m on
    is rejected.

    >>> [bool(spread_reaches(m, [0, 0, 500, 0, 500], 0.001, 0.0625)) for m in (0.7199, 0.7201)]
    [True, False]
    """
    c, stakes, goal = _game(weights, alpha, variance_guess)
    first = np.ceil(np.ldexp(np.asarray(m, dtype=np.float64), HALVINGS))
    return np.asarray(_log_capital(c, stakes, np.ldexp(first, -HALVINGS)) >= goal)


def _game(weights: ArrayLike, alpha: ArrayLike, variance_guess: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """The weights, all stakes, and the logarithm of the capital that rejects."""
    c, goal = np.asarray(weights, dtype=np.float64), np.log(1 / check_alpha(alpha))
    v = np.clip(np.asarray(variance_guess, dtype=np.float64), 1e-9, 0.25)
    n = c.sum(axis=-1)
    with np.errstate(divide="ignore"):
        best = np.sqrt(2 * goal / (n * v))
    return c, STAKES * best[..., None], goal + ROUNDING + ROUNDED * n


def _log_capital(weights: Floats, stakes: Floats, m: Floats) -> Floats:
    """The logarithm of what all shares of the capital end as. One after the other: that takes less memory, and time."""
    above = np.linspace(0.0, 1.0, weights.shape[-1]) - m[..., None]
    bets = np.minimum(stakes, CAP / m[..., None])
    won = (np.log1p(bet[..., None] * above)[..., None, :] @ weights[..., None] for bet in np.moveaxis(bets, -1, 0))
    ends = np.stack([end[..., 0, 0] for end in won], axis=-1)
    return np.asarray(np.logaddexp.reduce(np.log(SHARES) + ends, axis=-1))
