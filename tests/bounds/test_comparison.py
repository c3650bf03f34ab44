"""The bound that compares a sum with a binomial: valid for any values in [0, 1], close to that of a count."""

import importlib

import mpmath as mp
import numpy as np
import pytest
from scipy import special, stats

from smoothcert import InputError
from smoothcert.bounds.binomial import clopper_pearson_lower
from smoothcert.bounds.comparison import comparison_lower

module = importlib.import_module("smoothcert.bounds.comparison")


def by_definition(s, n, alpha):
    """The largest p with `min_t E(B − t)₊ / (s − t) ≤ α`, over every whole t."""
    t = np.arange(int(np.ceil(s)))
    low, high = 0.0, 1.0
    for _ in range(50):
        p = (low + high) / 2
        over = n * p * stats.binom.sf(t - 1, n - 1, p) - t * stats.binom.sf(t, n, p)
        low, high = (p, high) if t.size and (over / (s - t)).min() <= alpha else (low, p)
    return low


@pytest.mark.parametrize("alpha", [0.2, 0.01, 1e-6])
@pytest.mark.parametrize("n", [1, 7, 100])
def test_no_other_t_rejects_more(n, alpha):
    sums = np.unique([*np.linspace(0, n, 23), n - 1e-3, n / 2])
    expected = [by_definition(s, n, alpha) for s in sums]
    assert comparison_lower(sums, n, alpha) == pytest.approx(expected, abs=2e-6)


def risk(k, s, n, p):
    """`E(B − t)₊ / (s − t)` for `t = k − 1`, in 40 digits."""
    with mp.workdps(40):
        p = mp.mpf(float(p))
        term, total = mp.binomial(n, k) * p**k * (1 - p) ** (n - k), mp.mpf(0)
        for j in range(k, n + 1):
            total += (j - k + 1) * term
            if j > k + 10 and (j - k + 2) * term < total * mp.mpf(10) ** -30:
                break
            term *= p / (1 - p) * (n - j) / (j + 1)
        return total / (mp.mpf(float(s)) - k + 1)


@pytest.mark.parametrize("n", [100, 10**4, 10**6])
@pytest.mark.parametrize("alpha", [0.05, 1e-9])
def test_rounding_is_paid_for(n, alpha):
    """A fifth of the margin, at most, is what the probabilities are off by."""
    for k in (n // 2, n * 6 // 10, n * 99 // 100, n - 2):
        s = min(k + 0.3 * np.sqrt(k * (n - k) / n), n)
        p = clopper_pearson_lower(k, n, alpha)
        computed = float(module._risk(*(np.float64(value) for value in (k, s, n)), p))
        assert abs(computed / risk(k, s, n, p) - 1) < module.ROUNDING * (1_000 + n) / 5


def miss(bound, low, high, n, alpha):
    """The largest chance that a bound passes the mean, of n values that are `low` or `high`."""
    k, p = np.arange(n + 1), np.linspace(0.002, 0.998, 250)[:, None]
    bounds = bound(low * (n - k) + high * k, n, alpha)
    passes = bounds > low + (high - low) * p + 1e-12
    return (passes * stats.binom.pmf(k, n, p)).sum(axis=1).max()


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.001])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 0.9), (0.3, 1), (0.45, 0.55), (0.62, 0.99)])
@pytest.mark.parametrize("n", [1, 5, 30])
def test_it_covers_two_points_exactly(low, high, n, alpha):
    assert miss(comparison_lower, low, high, n, alpha) <= alpha


def test_a_sum_rounded_to_a_count_would_not():
    """Hoeffding's comparison is with convex functions, which tails are not."""

    def rounded(total, n, alpha):
        return clopper_pearson_lower(np.round(total), n, alpha)

    assert miss(rounded, 0, 0.64, 3, 0.05) > 0.07


def test_of_ones_alone_it_is_that_of_the_count():
    n = np.array([1, 10, 1_000, 100_000])
    assert comparison_lower(n, n, 0.001) == pytest.approx(clopper_pearson_lower(n, n, 0.001), abs=1e-6)
    assert (comparison_lower(n, n, 0.001) <= clopper_pearson_lower(n, n, 0.001)).all()


def test_radii_from_a_fifth_of_sigma_on_are_within_two_percent_of_those_of_the_count():
    wins, n = np.arange(5_000, 10_001), 10_000
    exact, ours = (special.ndtri(bound(wins, n, 0.001)) for bound in (clopper_pearson_lower, comparison_lower))
    some = exact >= 0.2
    assert (ours[some] >= 0.98 * exact[some]).all()
    assert (ours <= exact).all()


def test_it_grows_with_the_sum():
    bounds = comparison_lower(np.linspace(0, 500, 4_001), 500, 0.01)
    assert (np.diff(bounds) >= -1e-9).all()
    assert bounds[0] == 0


@pytest.mark.parametrize(("total", "n"), [(-1, 10), (11, 10), (1, 0), (1, 1.5), (np.nan, 10)])
def test_sums_that_are_none(total, n):
    with pytest.raises(InputError, match="a sum of n values"):
        comparison_lower(total, n, 0.01)
