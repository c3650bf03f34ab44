"""Bounds on the mean of spread votes: never above what the votes themselves would prove, valid, and hardly wider."""

import importlib

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from smoothcert.bounds.comparison import _around, _is_count, comparison_lower
from smoothcert.bounds.means import betting_lower
from smoothcert.bounds.ramps import _bets_are_better, _variance, expected, ramps
from smoothcert.bounds.spread import CAP, SHARES, _game, _log_capital, spread_lower
from smoothcert.sampling.blocks import UNIT

module = importlib.import_module("smoothcert.bounds.spread")
B = 32


def spread(x):
    """Values (…, n) in [0, 1], rounded down as votes are, on the points of the grid, (…, B + 1)."""
    x = np.floor(x * UNIT) / UNIT
    point = np.minimum(np.floor(x * B), B - 1)
    out = np.zeros((*x.shape[:-1], B + 1))
    rows = np.indices(x.shape)[:-1]
    for at, share in ((point, 1 - (x * B - point)), (point + 1, x * B - point)):
        np.add.at(out, (*rows, at.astype(int)), share)
    return out


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0.001, 0.999), st.floats(0.01, 100), st.floats(0, 1)
)
def test_the_chord_lies_below_the_logarithm(values, m, stake, other):
    """What is won on spread values is not above what is won on the values, and falls in m."""
    x = np.array(values)
    bets = np.minimum(module.STAKES * stake, CAP / m)
    each = np.log(module.SHARES) + np.log1p(bets[:, None] * (x - m)).sum(axis=1)
    won = module._log_capital(spread(x), module.STAKES * stake, np.array(m))
    assert won <= np.logaddexp.reduce(each) + 1e-9
    later = max(m, other * 0.999)
    assert module._log_capital(spread(x), module.STAKES * stake, np.array(later)) <= won + 1e-9


@pytest.mark.parametrize("variance_guess", [1e-6, 0.003, 0.05, 0.25])
@pytest.mark.parametrize("alpha", [0.2, 0.01])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.21, 0.83), (0.49, 0.52)])
def test_bets_cover_two_points_whatever_was_guessed(low, high, alpha, variance_guess):
    """The exact probability that the bound passes the mean."""
    n, p = 30, np.linspace(0.005, 0.995, 100)[:, None]
    k = np.arange(n + 1)
    x = np.where(np.arange(n) < k[:, None], high, low).astype(float)
    lower = spread_lower(spread(x), alpha, variance_guess)
    misses = (lower > low + (high - low) * p + 1e-12) * stats.binom.pmf(k, n, p)
    assert misses.sum(axis=1).max() <= alpha


def ramp(lead, width):
    """Votes of width w on a margin that leads by so many of its deviations, and their mean."""
    ends = np.array([-width, width]) - lead
    area = np.diff(ends * special.ndtr(ends) + np.exp(-(ends**2) / 2) / np.sqrt(2 * np.pi))[0]
    return lambda rng, shape: np.clip(0.5 + (lead + rng.normal(size=shape)) / (2 * width), 0, 1), 1 - area / (2 * width)


SAMPLERS = {
    "beta": (lambda rng, shape: rng.beta(0.5, 2, shape), 0.2),
    "narrow beta": (lambda rng, shape: rng.beta(40, 10, shape), 0.8),
    "two points": (lambda rng, shape: 0.3 + 0.4 * (rng.random(shape) < 0.25), 0.4),
    "spiked": (lambda rng, shape: 1.0 - 0.9 * (rng.random(shape) < 0.02), 0.982),
    "nearly duels": ramp(1.0, 0.05),
    "a wide ramp": ramp(1.0, 3.0),
    "hardly ever lost": ramp(2.5, 0.5),
}


def naive(selection, estimation, alpha):
    """What one must not do: the normal approximation."""
    n, points = estimation.sum(axis=-1), np.linspace(0, 1, B + 1)
    mean = estimation @ points / n
    return mean + special.ndtri(alpha) * np.sqrt((estimation @ points**2 / n - mean**2) / n)


def misses(bound, name, repeats=4000, alpha=0.05, n0=50, n=150):
    """How often a bound passes the mean, the choice on its own selection sample included; and the most for luck."""
    sampler, mean = SAMPLERS[name]
    rng = np.random.default_rng(1)
    before, x = sampler(rng, (repeats, n0)), sampler(rng, (repeats, n))
    wrong = (bound(spread(before), spread(x), alpha) > mean + 1e-12).sum()
    return wrong, stats.binom.isf(1e-4, repeats, alpha)


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_chosen_bound_covers_by_simulation(name):
    wrong, most = misses(ramps, name)
    assert wrong <= most


def test_a_wrong_bound_is_found_out():
    wrong, most = misses(naive, "spiked")
    assert wrong > most


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize(("n", "alpha"), [(1_000, 0.001), (10_000, 1e-9)])
def test_the_estimate_chooses_as_well_as_both_bounds_would(name, n, alpha):
    """Those of votes like the selection's; a choice between bounds that are alike may be another one."""
    sampler, _ = SAMPLERS[name]
    rng = np.random.default_rng(4)
    before, votes = spread(sampler(rng, (40, 100))), spread(sampler(rng, (40, n)))
    guess, like, points = _variance(before), before * (n / 100), np.linspace(0, 1, B + 1)
    bets = spread_lower(like, alpha, guess) > comparison_lower(np.minimum(like @ points, n), n, alpha)
    both = np.where(bets, spread_lower(votes, alpha, guess), comparison_lower(votes @ points, n, alpha))
    assert ramps(before, votes, alpha).mean() == pytest.approx(both.mean(), rel=1e-3)


@pytest.mark.parametrize("alpha", [1 - 1e-9, 0.3, 1e-9, 1e-100])
@pytest.mark.parametrize("n", [1.0, 40.0, 2e9])
def test_every_selection_gets_a_choice(n, alpha):
    """Also with votes that are all nothing, or all whole; and it does not depend on who is chosen for beside."""
    votes = 100 * np.concatenate([np.eye(B + 1), np.random.default_rng(5).dirichlet(np.full(B + 1, 0.1), 100)])
    guess, each = _variance(votes), np.full(len(votes), n)
    with np.errstate(all="raise", under="ignore"):
        chosen = _bets_are_better(votes, guess, each, alpha)
    alone = [_bets_are_better(votes[i : i + 1], guess[i : i + 1], each[:1], alpha)[0] for i in range(len(votes))]
    assert not chosen[[0, B]].any()
    assert np.array_equal(chosen, alone)


@pytest.mark.parametrize("alpha", [0.3, 0.001, 1e-9, 1e-100])
@pytest.mark.parametrize("n", [1, 10, 1000, 2_000_000_000])
def test_the_count_is_looked_for_where_it_is(n, alpha):
    """And nearly always among so few that finding it takes few steps."""
    rng = np.random.default_rng(6)
    p = np.concatenate([rng.random(200), 1 - 10 ** -rng.uniform(0, 10, 200), 10 ** -rng.uniform(0, 10, 200)])
    size, level = np.full(p.shape, float(n)), np.full(p.shape, alpha)
    low, high = _around(p, size, level)
    assert _is_count(low, p, size, level).all()
    assert not _is_count(high + 1, p, size, level)[high < n].any()
    assert np.mean(high - low <= 4 + special.ndtri(alpha) ** 2 / 3) > 0.99


def test_two_points_are_covered_exactly_with_the_choice():
    """Every selection and every estimation sample of values that are 0 or 1."""
    n0, n, alpha = 6, 25, 0.1
    before, after = np.arange(n0 + 1), np.arange(n + 1)
    selection, estimation = (np.zeros((len(k), B + 1)) for k in (before, after))
    selection[:, 0], selection[:, -1] = n0 - before, before
    estimation[:, 0], estimation[:, -1] = n - after, after
    pairs = np.repeat(before, n + 1), np.tile(after, n0 + 1)
    bound = ramps(selection[pairs[0]], estimation[pairs[1]], alpha)
    for p in np.linspace(0.01, 0.99, 99):
        mass = stats.binom.pmf(pairs[0], n0, p) * stats.binom.pmf(pairs[1], n, p)
        assert mass[bound > p + 1e-12].sum() <= alpha


@pytest.mark.parametrize("name", ["narrow beta", "a wide ramp", "hardly ever lost"])
def test_it_is_hardly_wider_than_betting_that_sees_every_value(name):
    """Radii of 20 samples of 10 000 votes, within 1.5 % on average."""
    sampler, _ = SAMPLERS[name]
    rng = np.random.default_rng(2)
    before, x = sampler(rng, (20, 100)), sampler(rng, (20, 10_000))
    ours, theirs = special.ndtri(ramps(spread(before), spread(x), 0.001)), special.ndtri(betting_lower(x, 0.001))
    assert ours.mean() >= 0.985 * theirs.mean()


def test_what_is_expected_comes_true_where_the_samples_are_alike():
    x = np.random.default_rng(3).beta(8, 3, (5, 100))
    votes = spread(x)
    assert expected(votes, 10_000, 0.001) == pytest.approx(ramps(votes, 100 * votes, 0.001), abs=1e-9)


@pytest.mark.parametrize("guess", [1e-9, 0.01])
@pytest.mark.parametrize("n", [1_000, 2_000_000_000])
def test_rounding_of_the_capital_is_allowed_for(n, guess):
    """By sums of 50 digits, also where logarithms of either sign, n of them, nearly cancel."""
    weights = np.random.default_rng(0).multinomial(n, np.full(33, 1 / 33)).astype(float)
    low = float(spread_lower(weights, 0.001, guess))
    shares, stakes, goal = _game(weights, 0.001, guess)
    with mpmath.workdps(50):
        bets = [min(mpmath.mpf(float(s)), CAP / mpmath.mpf(low)) for s in stakes]
        ends = [
            sum(w * mpmath.log1p(bet * (mpmath.mpf(b) / 32 - low)) for b, w in enumerate(shares.tolist()))
            for bet in bets
        ]
        capital = mpmath.log(sum(share * mpmath.exp(end) for share, end in zip(SHARES.tolist(), ends, strict=True)))
        assert capital >= mpmath.log(1000)
        found = float(_log_capital(shares, stakes, np.asarray(low)))
        assert abs(capital - found) < float(goal) - np.log(1000)
