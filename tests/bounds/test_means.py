"""Bounds on means: valid by enumeration and by simulation, equal to their definitions, and betting the narrowest."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special, stats

from smoothcert.bounds import clopper_pearson_lower
from smoothcert.bounds.means import (
    betting_lower,
    betting_upper,
    empirical_bernstein_lower,
    empirical_bernstein_upper,
    hoeffding_lower,
    hoeffding_upper,
)
from smoothcert.errors import InputError

module = importlib.import_module("smoothcert.bounds.means")
Floats = NDArray[np.float64]
Bound = Callable[[Floats, float], Floats]
Sampler = Callable[[np.random.Generator, tuple[int, int]], Floats]
TIE = 1e-12  # a bound that passes the mean by less is right: both are rounded


def of_mean(bound: Callable[..., Floats]) -> Bound:
    return lambda x, alpha: bound(x.mean(axis=-1), x.shape[-1], alpha)


def of_moments(bound: Callable[..., Floats]) -> Bound:
    return lambda x, alpha: bound(x.mean(axis=-1), x.var(axis=-1, ddof=1), x.shape[-1], alpha)


LOWER: dict[str, Bound] = {
    "hoeffding": of_mean(hoeffding_lower),
    "bernstein": of_moments(empirical_bernstein_lower),
    "betting": betting_lower,
}
UPPER: dict[str, Bound] = {
    "hoeffding": of_mean(hoeffding_upper),
    "bernstein": of_moments(empirical_bernstein_upper),
    "betting": betting_upper,
}


def normal_lower(x: Floats, alpha: float) -> Floats:
    """What one must not do: the normal approximation, with no account of values not seen."""
    return x.mean(axis=-1) + special.ndtri(alpha) * x.std(axis=-1, ddof=1) / np.sqrt(x.shape[-1])


def normal_upper(x: Floats, alpha: float) -> Floats:
    return 1 - normal_lower(1 - x, alpha)


# The formulas, in 30 digits.


@pytest.mark.parametrize("n", [2, 10, 1000, 10**6])
@pytest.mark.parametrize("alpha", [0.1, 1e-3, 1e-12])
def test_widths_are_those_of_the_theorems(n: int, alpha: float) -> None:
    with mp.workdps(30):
        for mean in (0.0, 0.03, 0.5, 0.99, 1.0):
            width = mp.sqrt(mp.log(1 / mp.mpf(alpha)) / (2 * n))
            assert float(hoeffding_lower(mean, n, alpha)) == pytest.approx(float(max(mean - width, 0)), abs=1e-15)
            assert float(hoeffding_upper(mean, n, alpha)) == pytest.approx(float(min(mean + width, 1)), abs=1e-15)
            for v in (0.0, 1e-4, 0.04, n / (4 * (n - 1))):
                log = mp.log(2 / mp.mpf(alpha))
                width = mp.sqrt(2 * mp.mpf(v) * log / n) + 7 * log / (3 * (n - 1))
                lower, upper = float(max(mean - width, 0)), float(min(mean + width, 1))
                assert float(empirical_bernstein_lower(mean, v, n, alpha)) == pytest.approx(lower, abs=1e-15)
                assert float(empirical_bernstein_upper(mean, v, n, alpha)) == pytest.approx(upper, abs=1e-15)


def loop_bound(values: list[float], alpha: float) -> float:
    """The betting bound as the paper writes it: one factor after the other, m on finer and finer grids."""

    def rejected(m: float) -> bool:
        capital, total, squares, t = 1.0, 0.5, 0.25, 0
        for x in values:
            bet = (2 * np.log(1 / alpha) / (len(values) * squares / (t + 1))) ** 0.5
            capital *= 1 + min(bet, 0.75 / m) * (x - m)
            if capital >= 1 / alpha:
                return True
            t, total = t + 1, total + x
            squares += (x - total / (t + 1)) ** 2
        return False

    best, step = 0.0, 0.1
    while step > 1e-10:
        while rejected(best + step):
            best += step
        step /= 10
    return best


@pytest.mark.parametrize("alpha", [0.2, 0.01])
def test_betting_is_the_loop_of_the_paper(alpha: float) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.beta(2, 5, (3, 60)), rng.random((3, 60)) < [[0.1], [0.5], [0.97]], np.ones((1, 60))])
    expected = np.array([loop_bound(list(row), alpha) for row in x])
    assert betting_lower(x, alpha) == pytest.approx(expected, abs=1e-9)
    assert betting_upper(1 - x, alpha) == pytest.approx(1 - expected, abs=1e-9)
    assert expected.min() < 0.1 < 0.8 < expected.max()


def test_leading_axes_and_levels_broadcast() -> None:
    x = np.random.default_rng(2).beta(3, 1, (2, 3, 40))
    alpha = np.array([[0.1], [0.001]])
    bounds = betting_lower(x, alpha)
    assert bounds.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        assert bounds[i, j] == betting_lower(x[i, j], alpha[i, 0])
    assert betting_lower(x[0, 0], np.array([0.1, 0.001])).tolist() == [bounds[0, 0], betting_lower(x[0, 0], 0.001)]
    assert hoeffding_lower(x.mean(-1), 40, alpha).shape == (2, 3)
    assert empirical_bernstein_upper(0.2, [0.0, 0.1], [[50], [60], [70]], 0.1).shape == (3, 2)


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=20),
    st.floats(1e-6, 1, exclude_max=True),
    st.floats(1e-6, 1, exclude_max=True),
    st.floats(1e-6, 0.5),
)
def test_the_capital_falls_in_m(values: list[float], m: float, other: float, alpha: float) -> None:
    """Which is why the rejected m are an interval, and halving finds its end."""
    x = np.array(values)
    bets = module._bets(x, np.log(1 / np.array(alpha)))
    small, large = (module._log_capital(x, bets, np.array(end)) for end in sorted([m, other]))
    assert np.all(small >= large - 1e-9)


# Every outcome, with its probability.


@pytest.mark.parametrize("n", [2, 5, 30, 200])
@pytest.mark.parametrize("alpha", [0.5, 0.05, 0.001])
@pytest.mark.parametrize(("a", "b"), [(0.0, 1.0), (0.3, 1.0), (0.0, 0.2), (0.45, 0.55)])
@pytest.mark.parametrize("name", ["hoeffding", "bernstein"])
def test_moment_bounds_are_valid_for_every_two_point_variable(
    name: str, a: float, b: float, alpha: float, n: int
) -> None:
    k = np.arange(n + 1)
    x = np.where(np.arange(n) < k[:, None], b, a)
    p = np.linspace(0, 1, 1001)[:, None]
    mean, probability = a + (b - a) * p, stats.binom.pmf(k, n, p)
    too_high = (probability * (LOWER[name](x, alpha) > mean + TIE)).sum(axis=1)
    too_low = (probability * (UPPER[name](x, alpha) < mean - TIE)).sum(axis=1)
    assert max(too_high.max(), too_low.max()) <= alpha


def sequences(points: list[float], n: int) -> tuple[NDArray[np.int64], Floats]:
    """All sequences of n points, as indices and as values."""
    index = np.array(list(itertools.product(range(len(points)), repeat=n)))
    return index, np.array(points)[index]


SUPPORTS = [([0.0, 1.0], 11), ([0.2, 1.0], 10), ([0.0, 0.1], 10), ([0.0, 0.7, 1.0], 7)]


def weights(size: int) -> Floats:
    """Distributions over `size` points: a grid of the simplex, the ends nearly reached."""
    grid = np.array([0.003, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98, 0.997])
    rows = [(p, 1 - p) for p in grid] if size == 2 else [(p, q, 1 - p - q) for p in grid for q in grid if p + q < 1]
    return np.array(rows)


@pytest.mark.parametrize("alpha", [0.5, 0.1, 0.01])
@pytest.mark.parametrize(("points", "n"), SUPPORTS)
def test_betting_is_valid_over_all_sequences(points: list[float], n: int, alpha: float) -> None:
    index, x = sequences(points, n)
    lower, upper = betting_lower(x, alpha), betting_upper(x, alpha)
    for weight in weights(len(points)):
        mean, probability = weight @ points, weight[index].prod(axis=1)
        assert probability[lower > mean + TIE].sum() <= alpha
        assert probability[upper < mean - TIE].sum() <= alpha


@pytest.mark.parametrize(("points", "n"), SUPPORTS)
def test_the_game_is_fair_at_the_true_mean(points: list[float], n: int) -> None:
    """The expected capital is 1 after every round: no bet has seen the value that it is made on."""
    index, x = sequences(points, n)
    bets = module._bets(x, np.log(1 / np.array(0.05)))
    for weight in weights(len(points)):
        capital = np.exp(module._log_capital(x, bets, np.array(weight @ points)))
        assert weight[index].prod(axis=1) @ capital == pytest.approx(np.ones(n), rel=1e-9)


# Simulation: 4000 samples a case.

SAMPLERS: dict[str, tuple[Sampler, float]] = {
    "beta(2, 2)": (lambda rng, shape: rng.beta(2, 2, shape), 1 / 2),
    "beta(0.1, 0.3)": (lambda rng, shape: rng.beta(0.1, 0.3, shape), 1 / 4),
    "beta(30, 1)": (lambda rng, shape: rng.beta(30, 1, shape), 30 / 31),
    "two points, even": (lambda rng, shape: 1.0 * (rng.random(shape) < 0.5), 0.5),
    "two points, near": (lambda rng, shape: 0.45 + 0.1 * (rng.random(shape) < 0.2), 0.47),
    "spike at 1": (lambda rng, shape: np.where(rng.random(shape) < 0.01, 0, rng.uniform(0.98, 1, shape)), 0.9801),
    "spike at 0": (lambda rng, shape: np.where(rng.random(shape) < 0.01, 1, rng.uniform(0, 0.02, shape)), 0.0199),
}
ALPHA, SAMPLES = 0.05, 4000


def shows_errors_above_alpha(lower: Bound, upper: Bound, name: str, n: int) -> bool:
    """Whether either side errs so often that a rate of α or less is ruled out at level 10⁻⁶."""
    sampler, mean = SAMPLERS[name]
    x = sampler(np.random.default_rng(n), (SAMPLES, n))
    errors = [(lower(x, ALPHA) > mean + TIE).sum(), (upper(x, ALPHA) < mean - TIE).sum()]
    return bool((clopper_pearson_lower(errors, SAMPLES, 1e-6) > ALPHA).any())


@pytest.mark.parametrize("n", [20, 100])
@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("bound", LOWER)
def test_coverage(bound: str, name: str, n: int) -> None:
    assert not shows_errors_above_alpha(LOWER[bound], UPPER[bound], name, n)


@pytest.mark.parametrize("n", [20, 100])
@pytest.mark.parametrize("name", ["spike at 1", "spike at 0"])
def test_the_normal_approximation_does_not_pass(name: str, n: int) -> None:
    assert shows_errors_above_alpha(normal_lower, normal_upper, name, n)


@pytest.mark.parametrize("n", [100, 1000])
@pytest.mark.parametrize("name", SAMPLERS)
def test_betting_is_the_narrowest(name: str, n: int) -> None:
    x = SAMPLERS[name][0](np.random.default_rng(3), (50, n))
    width = {bound: (UPPER[bound](x, 0.001) - LOWER[bound](x, 0.001)).mean() for bound in LOWER}
    assert width["betting"] < min(width["bernstein"], width["hoeffding"])


# Bad input.


@pytest.mark.parametrize("mean", [-0.01, 1.01, float("nan"), "much", [0.5, 2.0]])
def test_a_mean_out_of_range(mean: object) -> None:
    for bound in (hoeffding_lower, hoeffding_upper):
        with pytest.raises(InputError, match="mean"):
            bound(mean, 10, 0.05)
    for bound in (empirical_bernstein_lower, empirical_bernstein_upper):
        with pytest.raises(InputError, match="mean"):
            bound(mean, 0.1, 10, 0.05)


@pytest.mark.parametrize("variance", [-1e-3, 0.28, float("nan"), float("inf")])
def test_a_variance_out_of_range(variance: float) -> None:
    """With ten values it is at most 10/36 = 0.277…, half of them 0 and half 1."""
    for bound in (empirical_bernstein_lower, empirical_bernstein_upper):
        with pytest.raises(InputError, match="variance"):
            bound(0.5, variance, 10, 0.05)


def test_moments_may_pass_their_range_by_rounding() -> None:
    over, under, limit = 1 + 2**-50, -(2**-50), 10 / 36
    assert hoeffding_lower(over, 10, 0.05) == pytest.approx(hoeffding_lower(1, 10, 0.05))
    assert hoeffding_upper(under, 10, 0.05) == pytest.approx(hoeffding_upper(0, 10, 0.05))
    assert hoeffding_lower(under, 10, 0.05) == 0
    assert hoeffding_upper(over, 10, 0.05) == 1
    for variance, nearest in ((under, 0.0), (limit * over, limit)):
        expected = empirical_bernstein_lower(1, nearest, 10, 0.5)
        assert empirical_bernstein_lower(over, variance, 10, 0.5) == pytest.approx(expected)
        assert np.isfinite(expected)


@pytest.mark.parametrize("n", [0, -5, 2.5, float("nan"), float("inf")])
def test_a_size_that_is_none(n: float) -> None:
    for bound in (hoeffding_lower, hoeffding_upper):
        with pytest.raises(InputError, match="n must be a whole number of at least 1"):
            bound(0.5, n, 0.05)
    for bound in (empirical_bernstein_lower, empirical_bernstein_upper):
        with pytest.raises(InputError, match="n must be a whole number of at least 2"):
            bound(0.5, 0.1, n, 0.05)


def test_one_value_has_no_variance() -> None:
    with pytest.raises(InputError, match="at least 2"):
        empirical_bernstein_lower(0.5, 0.0, 1, 0.05)


@pytest.mark.parametrize(
    "values", [0.5, [], [[]], [0.5, 1.1], [-0.1], [float("nan"), 0.5], ["much"], [[0.1], [0.2, 0.3]]]
)
def test_values_out_of_range(values: object) -> None:
    for bound in (betting_lower, betting_upper):
        with pytest.raises(InputError, match="values"):
            bound(values, 0.05)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, float("nan"), "much", [0.05, 1.5]])
def test_alpha_out_of_range(alpha: object) -> None:
    for bound in (hoeffding_lower, hoeffding_upper):
        with pytest.raises(InputError, match="alpha"):
            bound(0.5, 10, alpha)
    for bound in (empirical_bernstein_lower, empirical_bernstein_upper):
        with pytest.raises(InputError, match="alpha"):
            bound(0.5, 0.1, 10, alpha)
    for bound in (betting_lower, betting_upper):
        with pytest.raises(InputError, match="alpha"):
            bound([0.5], alpha)
