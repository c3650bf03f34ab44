"""The radius of a pair from one bound on F̃_1 − b F̃_j: never above the exact one, and equal to it at the tangent."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert import InputError, radii
from smoothcert.radii.pair import holds, least_pair, pair, slope, supremum

probability = st.floats(1e-6, 1 - 1e-6)
scale = st.floats(-2, 3).map(lambda e: 10.0**e)


@settings(max_examples=50)
@given(probability, probability, scale, st.floats(0.1, 3.0), st.floats(-3, 3))
def test_no_slope_proves_more_than_the_exact_radius(p1, pj, lipschitz, sigma, log_b):
    b = np.exp(log_b)
    if p1 - b * pj <= 1:
        assert pair(p1 - b * pj, b, sigma, lipschitz) <= max(0.0, radii.exact_mult(p1, pj, sigma, lipschitz)) + 1e-12


def pairs():
    rng = np.random.default_rng(0)
    p1 = rng.uniform(0.05, 0.999, 500)
    pj = p1 * rng.uniform(0.001, 0.9, 500)
    pj = np.minimum(pj, 1 - p1)
    return p1, pj, 10 ** rng.uniform(-1, 0.5, 500)


@pytest.mark.parametrize("l_sigma", [0.01, 0.3, 3.0, 300.0, np.inf])
def test_the_tangent_loses_nothing(l_sigma):
    p1, pj, sigma = pairs()
    b = slope(p1, pj, sigma, l_sigma / sigma)
    exact = radii.exact_mult(p1, pj, sigma, l_sigma / sigma)
    assert pair(p1 - b * pj, b, sigma, l_sigma / sigma) == pytest.approx(exact, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("lipschitz", [0.5, 5.0, np.inf])
def test_the_radius_is_the_last_one_that_holds_at_every_q(lipschitz):
    """The supremum on a fine grid of q, by s0 and the exact radius: at r it is within the bound, beyond r it is not."""
    sigma, b, bound = 0.4, 0.7, 0.62
    r = float(pair(bound, b, sigma, lipschitz))
    q = np.linspace(1e-9, 1 - 1e-9, 200_001)
    z = np.linspace(1e-9, 1 - 1e-9, 4_001)
    t = -radii.s0(z, sigma, lipschitz)

    def supremum(r):
        return (np.interp(-radii.s0(q, sigma, lipschitz) + 2 * r, t, z, left=0, right=1) - b * q).max()

    assert supremum(0.999 * r) < bound < supremum(1.001 * r)
    assert holds(0.999 * r, bound, b, sigma, lipschitz)
    assert not holds(1.001 * r, bound, b, sigma, lipschitz)


def test_a_larger_constant_never_gives_a_larger_radius():
    p1, pj, sigma = pairs()
    found = [pair(p1 - pj, 1.0, sigma, constant / sigma) for constant in (0.1, 1.0, 10.0, 100.0, np.inf)]
    for larger, smaller in pairwise(found):
        assert (larger >= smaller * (1 - 1e-6)).all()


def test_what_proves_nothing_is_zero():
    assert pair([0.0, -0.3, 0.29], [1.0, 1.0, 0.7], 0.5).tolist() == [0, 0, 0]


@pytest.mark.parametrize("arguments", [(1.2, 1.0, 0.5), (0.5, -1.0, 0.5), (0.5, np.nan, 0.5), (0.5, 1.0, 0.0)])
def test_numbers_that_make_no_sense_are_refused(arguments):
    with pytest.raises(InputError):
        pair(*arguments)


@pytest.mark.parametrize("lipschitz", [0.3, 3.0, np.inf])
@pytest.mark.parametrize("apart", [0.3, 1e-10, 1e-15, 0.0], ids=["apart", "near", "nearer", "tied"])
def test_the_least_of_many_pairs_is_that_of_all_to_the_last_bit(lipschitz, apart):
    """Some of which prove nothing, or much more; the last input has no rivals."""
    rng = np.random.default_rng(7)
    inputs, sigma = rng.permutation(np.repeat(np.arange(12), 40)), 0.37
    own = rng.uniform(0.2, 0.9, 12)[inputs]
    bound = np.minimum(own + apart * rng.uniform(-1, 1, inputs.size), 1.0)
    b = rng.choice([0.8, 1.0, 1.7], 12)[inputs] * (1 + apart * rng.uniform(-1, 1, inputs.size))
    bound[inputs == 3], bound[(inputs == 4) & (np.arange(inputs.size) % 2 > 0)] = -0.2, 1.0
    constants = np.broadcast_to(lipschitz * (1 + apart * rng.uniform(-1, 1, inputs.size)), inputs.shape)
    least = np.full(13, np.inf)
    np.minimum.at(least, inputs, pair(bound, b, sigma, constants))
    assert least_pair(inputs, 13, bound, b, sigma, constants).tolist() == least.tolist()
    assert least[3] == 0
    assert (least > 0).any()


def test_rivals_who_are_nearly_alike_are_asked_less_often_than_they_are_halved(monkeypatch):
    asked = []
    monkeypatch.setattr("smoothcert.radii.pair.supremum", lambda r, b, w: asked.append(np.size(r)) or supremum(r, b, w))
    bound = 0.5 + 1e-14 * np.random.default_rng(0).random(10_000)
    least_pair(np.zeros(10_000, dtype=np.int64), 1, bound, np.ones(10_000), 0.5, np.full(10_000, 2.0))
    assert sum(asked) < 25 * 10_000
