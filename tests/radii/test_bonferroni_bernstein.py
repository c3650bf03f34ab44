"""The paper's setting for soft votes: a constant never lowers a radius, and none is negative or above the truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert import radii
from smoothcert.bounds import SoftVotes
from smoothcert.radii.soft import SOFT_METHODS
from smoothcert.sampling.blocks import UNIT

bonferroni_bernstein = SOFT_METHODS["bonferroni-bernstein"]


def constant_shares(means, n):
    """n draws that all have the same shares: no variance, so that the bounds are as close to the means as can be."""
    k = np.rint(np.asarray(means) * UNIT).astype(np.int64)[None]
    return SoftVotes(np.array([n]), n * k, n * k**2, n * k * k[0, k.argmax()])


def radius(means, n, sigma, constant):
    votes = constant_shares(means, n)
    return float(bonferroni_bernstein(votes, votes, 0.001, sigma, np.full(votes.sums.shape, constant))[0])


def test_a_constant_does_not_make_a_radius_negative():
    """Of the bounds on .16 and .14 R_multiLip is −0.0025: below ½ the paper's formula may be less than nothing."""
    means = [0.16, 0.14, *[0.7 / 8] * 8]
    plain = radius(means, 10**6, 0.12, np.inf)
    assert plain > 0
    assert radius(means, 10**6, 0.12, 0.3) >= plain
    assert float(radii.mult_lipschitz(0.1599, 0.1401, 0.12, 0.3)) < 0


def test_across_one_half_it_is_the_radius_of_the_paper():
    n, level = 10**6, 0.001 / 3
    width = 7 * np.log(2 / level) / (3 * (n - 1)) + 0.5 / UNIT
    want = radii.mult_lipschitz(0.75 - width, 0.125 + width, 0.12, 2.0)
    assert radius([0.75, 0.125, 0.125], n, 0.12, 2.0) == pytest.approx(float(want), rel=1e-9)


@settings(max_examples=300)
@given(
    st.floats(0.05, 0.98),
    st.floats(0, 1),
    st.integers(3, 20),
    st.sampled_from([100, 10_000, 10**6]),
    st.floats(-2, 0.5).map(lambda e: 10**e),
    st.floats(-4, 3).map(lambda e: 10**e),
)
def test_a_constant_never_lowers_a_radius_nor_lifts_it_above_the_exact_one(top, share, classes, n, sigma, steep):
    second = share * min(top, 1 - top)
    means = [top, second, *[(1 - top - second) / (classes - 2)] * (classes - 2)]
    constant = steep / sigma
    plain, found = radius(means, n, sigma, np.inf), radius(means, n, sigma, constant)
    assert 0 <= plain <= found
    p2, p1 = np.sort(means)[-2:]
    exact = radii.exact_mult(min(p1 + 1 / UNIT, 1), max(p2 - 1 / UNIT, 0), sigma, constant)
    assert found <= max(float(exact), 0)
