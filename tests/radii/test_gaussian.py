"""The plain radii against mpmath, and what they do at the ends of [0, 1]."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert import radii
from smoothcert.errors import InputError

tails = st.floats(-300, -0.31).map(lambda e: 10.0**e)
near_half = st.floats(-15, -1).map(lambda e: 0.5 + 10.0**e)
probability = tails | near_half | near_half.map(lambda p: 1 - p) | st.floats(1e-12, 1 - 1e-12)
sigma = st.floats(1e-3, 1e3)


def quantile(p):
    """Φ⁻¹(p), Newton's method on mpmath's erfc from the smaller tail."""
    p = mp.mpf(p)
    q = min(p, 1 - p)
    z = mp.sqrt(-2 * mp.log(2 * q))
    for _ in range(80):
        tail = mp.erfc(z / mp.sqrt(2)) / 2
        step = mp.log(tail / q) * tail / mp.npdf(z)
        z += step
        if abs(step) < mp.mpf(10) ** -35:
            break
    return z if p > 0.5 else -z


@given(probability, sigma)
@mp.workdps(40)
def test_mono_is_sigma_times_the_normal_quantile(p, s):
    want = mp.mpf(s) * quantile(p)
    assert abs(mp.mpf(float(radii.mono(p, s))) - want) <= 1e-12 * abs(want) + 1e-13 * s


@given(probability, probability, sigma)
@mp.workdps(40)
def test_mult_is_half_the_difference_of_quantiles(p1, p2, s):
    want = mp.mpf(s) / 2 * (quantile(p1) - quantile(p2))
    assert abs(mp.mpf(float(radii.mult(p1, p2, s))) - want) <= 1e-12 * abs(want) + 1e-13 * s


@given(st.floats(0.5, 1 - 1e-12), sigma)
def test_mono_is_mult_against_all_the_rest(p, s):
    assert radii.mono(p, s) == pytest.approx(radii.mult(p, 1 - p, s), rel=1e-12)


def test_certainty_is_an_infinite_radius_and_a_tie_is_none():
    assert radii.mono([0.0, 0.5, 1.0], 1.0).tolist() == [-np.inf, 0.0, np.inf]
    assert radii.mult([1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0], 1.0).tolist() == [np.inf, 0.0, 0.0, -np.inf]


def test_arrays_broadcast():
    assert radii.mult(np.full((3, 1), 0.8), np.full(2, 0.1), 0.5).shape == (3, 2)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_the_margin_radius_divides_by_root_two_times_the_constant(m, constant):
    assert float(radii.margin(m, constant)) == pytest.approx(m / constant * 0.7071067811865476, rel=1e-14)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: radii.mono(1.1, 1.0), "between 0 and 1"),
        (lambda: radii.mono([0.5, -0.1], 1.0), "between 0 and 1"),
        (lambda: radii.mono(np.nan, 1.0), "between 0 and 1"),
        (lambda: radii.mult(0.5, 2.0, 1.0), "between 0 and 1"),
        (lambda: radii.mono(0.5, 0.0), "sigma must be positive"),
        (lambda: radii.mult(0.5, 0.1, np.nan), "sigma must be positive"),
        (lambda: radii.mono(0.5, np.inf), "sigma must be positive"),
        (lambda: radii.margin(1.0, 0.0), "Lipschitz constant must be positive"),
        (lambda: radii.margin(np.nan, 1.0), "margins must be numbers"),
    ],
)
def test_bad_input_is_one_sentence(call, says):
    with pytest.raises(InputError, match=says) as error:
        call()
    assert str(error.value).count(".") == 1
