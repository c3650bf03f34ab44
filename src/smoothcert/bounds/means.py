"""One-sided bounds on the mean of independent, equally distributed variables in [0, 1].

Hoeffding and empirical Bernstein need moments; betting needs the values themselves and is the narrowest. Betting on
moments needs a guess of mean and variance that was made before, on another sample; of the three that need no values it
is the narrowest, but for values near a fair coin's, where Hoeffding is by a few percent.
Each lower bound lies above the true mean with probability at most α, and each upper bound below it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.checks import check_alpha
from smoothcert.errors import InputError

Floats = NDArray[np.float64]

CAP = 0.75  # no bet risks more of the capital: 1 ruins it at the first 0, 1/2 is wider by half on constant values
HALVINGS = 40
STAKES = np.array([8.0, 2.0, 1.0, 0.5, 0.25, 0.125])  # times the best stake if the guess is right
SHARES = np.array([0.05, 0.1, 0.55, 0.15, 0.1, 0.05])  # of the capital
MOST = 0.95  # of the stake that a value of 0 would ruin
STAKE_HALVINGS = 24
PAST_THE_ENDS = 1e-12  # moments put together from others may pass the ends of their range by this much


def hoeffding_lower(mean: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> Floats:
    """`mean − √(ln(1/α) / 2n)`, at least 0 (Hoeffding, 1963, Theorem 1).

    >>> round(float(hoeffding_lower(0.9, 1000, 0.001)), 6)
    0.84123
    """
    mean, n, a = _mean(mean), _size(n, 1), check_alpha(alpha)
    return np.clip(mean - _hoeffding_width(n, a), 0.0, 1.0)


def hoeffding_upper(mean: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> Floats:
    """`mean + √(ln(1/α) / 2n)`, at most 1."""
    mean, n, a = _mean(mean), _size(n, 1), check_alpha(alpha)
    return np.clip(mean + _hoeffding_width(n, a), 0.0, 1.0)


def empirical_bernstein_lower(mean: ArrayLike, variance: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> Floats:
    """`mean − √(2 v ln(2/α) / n) − 7 ln(2/α) / 3(n − 1)`, at least 0 (Maurer and Pontil, 2009, Theorem 4).

    v is the unbiased sample variance (divided by n − 1). The 2 pays for estimating it: the bound is one-sided at α.

    >>> round(float(empirical_bernstein_lower(0.9, 0.01, 1000, 0.001)), 6)
    0.869917
    """
    n = _size(n, 2)
    mean, v, a = _mean(mean), _variance(variance, n), check_alpha(alpha)
    return np.clip(mean - _bernstein_width(v, n, a), 0.0, 1.0)


def empirical_bernstein_upper(mean: ArrayLike, variance: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> Floats:
    """`mean + √(2 v ln(2/α) / n) + 7 ln(2/α) / 3(n − 1)`, at most 1."""
    n = _size(n, 2)
    mean, v, a = _mean(mean), _variance(variance, n), check_alpha(alpha)
    return np.clip(mean + _bernstein_width(v, n, a), 0.0, 1.0)


def betting_lower(values: ArrayLike, alpha: ArrayLike) -> Floats:
    """The least m against which betting has not won 1/α: the lower side of the hedged capital of Waudby-Smith and
    Ramdas (2024) for a fixed n.

    It needs the values, not only their moments: `values` is (…, n), each row in the order drawn, or in any order
    chosen without looking at them. `alpha` broadcasts with the leading axes, and so does the answer.

    A gambler who doubts that the mean is at most m bets λ_i(m) = min(λ_i, CAP/m) on the i-th value and holds
    `K_t(m) = Π_{i≤t} (1 + λ_i(m) (x_i − m))`. Since λ_i depends on earlier values alone, K is a nonnegative
    supermartingale if the mean is at most m, and max_t K_t(m) ≥ 1/α with probability at most α (Ville). Each factor
    falls in m, so the rejected m are an interval from 0, and halving finds its end from below, to 2^−HALVINGS.

    >>> round(float(betting_lower([1.0] * 1000, 0.001)), 6)
    0.990799
    """
    x, a = _values(values), check_alpha(alpha)
    goal = np.log(1 / a)
    bets = _bets(x, goal)
    low = np.zeros(np.broadcast_shapes(x.shape[:-1], a.shape))
    high = np.ones_like(low)
    for _ in range(HALVINGS):
        m = (low + high) / 2
        rejected = _log_capital(x, bets, m).max(axis=-1) >= goal
        low, high = np.where(rejected, m, low), np.where(rejected, high, m)
    return low


def betting_upper(values: ArrayLike, alpha: ArrayLike) -> Floats:
    """`1 − betting_lower(1 − values, α)`: it needs the values in order, not only their moments."""
    return 1.0 - betting_lower(1.0 - _values(values), alpha)


def betting_moments_lower(
    mean: ArrayLike,
    variance: ArrayLike,
    n: ArrayLike,
    alpha: ArrayLike,
    mean_guess: ArrayLike,
    variance_guess: ArrayLike,
) -> Floats:
    """The least m against which bets with stakes fixed beforehand have not won 1/α; mean and variance are enough.

    The guesses g of the mean and v of the variance must not depend on this sample. For x in [0, 1] and `0 ≤ λg < 1`,
    with `ψ(λ) = (−ln(1 − λg) − λg) / g²`,

        exp(λ(x − g) − ψ(λ)(x − g)²) ≤ 1 + λ(x − g)

    (Fan, Grama and Liu, 2015, inequality 4.11, since λ(x − g) ≥ −λg). So `exp(λ(x − μ) − ψ(λ)(x − g)²)` has
    expectation at most `e^{λ(g − μ)} (1 + λ(μ − g)) ≤ 1` (Howard et al., 2021, Theorem 4). The capital is divided
    among `STAKES` times `√(2 ln(1/α) / (n v))`; each share pays `ψ(λ) Σ(x − g)²`, or Hoeffding's `n λ²/8` where v says
    that this is less. Against m it ends as `Σ_k SHARES_k exp(λ_k n(mean − m) − what it pays)`, with expectation at
    most 1 if the mean is at most m, and reaches 1/α with probability at most α (Markov).

    >>> round(float(betting_moments_lower(0.9, 0.01, 1000, 0.001, 0.9, 0.01)), 6)
    0.880321
    """
    n = _size(n, 2)
    mean, v, a = np.clip(_mean(mean), 0.0, 1.0), _variance(variance, n), check_alpha(alpha)
    g = np.clip(_mean(mean_guess), 1e-3, 1.0)[..., None]
    guess = np.clip(_numbers(variance_guess), 1e-9, 0.25)[..., None]
    if np.isnan(guess).any():
        raise InputError("variance_guess must be a number: it is the variance that the bets expect.")
    goal, size = np.log(1 / a)[..., None], n[..., None]
    stakes = np.minimum(STAKES * np.sqrt(2 * goal / (size * guess)), MOST / g)
    psi = (-np.log1p(-stakes * g) - stakes * g) / g**2
    squares = (size - 1) * v[..., None] + size * (mean[..., None] - g) ** 2
    needed = goal + np.where(psi * guess < stakes**2 / 8, psi * squares, size * stakes**2 / 8)
    low, high = ((needed - gain) / (size * stakes) for gain in (0.0, np.log(SHARES)))
    below, above = low.min(axis=-1), high.min(axis=-1)  # all the capital on one stake, a share of it on one stake
    for _ in range(STAKE_HALVINGS):
        width = (below + above) / 2
        won = (SHARES * np.exp(np.minimum(size * stakes * width[..., None] - needed, 1.0))).sum(axis=-1) >= 1
        below, above = np.where(won, below, width), np.where(won, width, above)
    return np.asarray(np.clip(mean - above, 0.0, 1.0))


def betting_moments_upper(
    mean: ArrayLike,
    variance: ArrayLike,
    n: ArrayLike,
    alpha: ArrayLike,
    mean_guess: ArrayLike,
    variance_guess: ArrayLike,
) -> Floats:
    """`1 − betting_moments_lower` of the values 1 − x."""
    return 1.0 - betting_moments_lower(1 - _mean(mean), variance, n, alpha, 1 - _mean(mean_guess), variance_guess)


def _hoeffding_width(n: Floats, alpha: Floats) -> Floats:
    width: Floats = np.sqrt(np.log(1 / alpha) / (2 * n))
    return width


def _bernstein_width(variance: Floats, n: Floats, alpha: Floats) -> Floats:
    log = np.log(2 / alpha)
    width: Floats = np.sqrt(2 * variance * log / n) + 7 * log / (3 * (n - 1))
    return width


def _bets(x: Floats, goal: Floats) -> Floats:
    """`λ_i = √(2 ln(1/α) / (n σ̂²_{i−1}))`, the predictable plug-in for a fixed n.

    `μ̂_i = (1/2 + Σ_{j≤i} x_j) / (i + 1)` and `σ̂²_i = (1/4 + Σ_{j≤i} (x_j − μ̂_j)²) / (i + 1)`, so that σ̂²_0 = 1/4.
    """
    n = x.shape[-1]
    i = np.arange(1, n + 1)
    mean = (0.5 + np.cumsum(x, axis=-1)) / (i + 1)
    squares = np.cumsum((x - mean) ** 2, axis=-1)
    before = np.concatenate([np.zeros_like(x[..., :1]), squares[..., :-1]], axis=-1)
    bets: Floats = np.sqrt(2 * goal[..., None] * i / (n * (0.25 + before)))
    return bets


def _log_capital(x: Floats, bets: Floats, m: Floats) -> Floats:
    """ln K_t(m) for t = 1 … n on the last axis."""
    m = m[..., None]
    capital: Floats = np.cumsum(np.log1p(np.minimum(bets, CAP / m) * (x - m)), axis=-1)
    return capital


def _mean(mean: ArrayLike) -> Floats:
    mean = _numbers(mean)
    if not np.all((mean >= -PAST_THE_ENDS) & (mean <= 1 + PAST_THE_ENDS)):
        raise InputError("mean must lie in [0, 1]: rescale the variables to that range.")
    return mean


def _size(n: ArrayLike, least: int) -> Floats:
    n = _numbers(n)
    if not np.all((n >= least) & (n == np.floor(n)) & np.isfinite(n)):
        raise InputError(f"n must be a whole number of at least {least}: it is the number of values drawn.")
    return n


def _variance(variance: ArrayLike, n: Floats) -> Floats:
    v = _numbers(variance)
    if not np.all((v >= -PAST_THE_ENDS) & (v <= n / (4 * (n - 1)) + PAST_THE_ENDS)):
        raise InputError("variance must be from 0 to n/(4(n − 1)): pass the unbiased variance of values in [0, 1].")
    return np.maximum(v, 0.0)


def _values(values: ArrayLike) -> Floats:
    x = _numbers(values)
    if x.ndim == 0 or x.shape[-1] == 0:
        raise InputError(f"values must be an array (…, n) with n of at least 1, got shape {x.shape}.")
    if not np.all((x >= 0) & (x <= 1)):
        raise InputError("values must lie in [0, 1]: rescale them to that range.")
    return x


def _numbers(values: ArrayLike) -> Floats:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("means, variances, sizes and values must be numbers or arrays of numbers.") from None
