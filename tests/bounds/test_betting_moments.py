"""Bets on the moments of a sample, with stakes that another sample chose: valid whatever was guessed."""

import numpy as np
import pytest
from scipy import stats

from smoothcert.bounds import betting_moments_lower, betting_moments_upper

GUESSES = [(m, v) for m in (0.02, 0.3, 0.5, 0.9, 1.0) for v in (1e-6, 0.003, 0.05, 0.25)]


@pytest.mark.parametrize(("mean_guess", "variance_guess"), GUESSES)
@pytest.mark.parametrize("alpha", [0.2, 0.01])
def test_bets_on_moments_cover_two_points_whatever_was_guessed(mean_guess, variance_guess, alpha):
    """The exact probability that the bound passes the mean, for every count of n draws that are 0 or 1."""
    n, p = 30, np.linspace(0.005, 0.995, 100)
    k = np.arange(n + 1)
    variance = k * (n - k) / (n * (n - 1))
    lower = betting_moments_lower(k / n, variance, n, alpha, mean_guess, variance_guess)
    upper = betting_moments_upper(k / n, variance, n, alpha, mean_guess, variance_guess)
    mass = stats.binom.pmf(k, n, p[:, None])
    assert ((lower > p[:, None] + 1e-12) * mass).sum(axis=1).max() <= alpha
    assert ((upper < p[:, None] - 1e-12) * mass).sum(axis=1).max() <= alpha


SAMPLERS = {
    "beta": (lambda rng, shape: rng.beta(0.5, 2, shape), 0.2),
    "narrow beta": (lambda rng, shape: rng.beta(40, 10, shape), 0.8),
    "two points": (lambda rng, shape: 0.3 + 0.4 * (rng.random(shape) < 0.25), 0.4),
    "spiked": (lambda rng, shape: 1.0 - 0.9 * (rng.random(shape) < 0.02), 0.982),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_bets_on_moments_cover_by_simulation(name):
    sampler, mean = SAMPLERS[name]
    rng = np.random.default_rng(1)
    alpha, repeats, n = 0.05, 4000, 150
    before, x = sampler(rng, (repeats, 50)), sampler(rng, (repeats, n))
    guess = before.mean(axis=1), (50 * before.var(axis=1) + 0.25) / 51
    moments = x.mean(axis=1), x.var(axis=1, ddof=1), n, alpha
    misses = (betting_moments_lower(*moments, *guess) > mean + 1e-12).sum()
    assert misses <= stats.binom.isf(1e-4, repeats, alpha)
    misses = (betting_moments_upper(*moments, *guess) < mean - 1e-12).sum()
    assert misses <= stats.binom.isf(1e-4, repeats, alpha)
