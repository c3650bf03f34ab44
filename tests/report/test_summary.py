"""Curves, and how many certificates may be wrong."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.summary import curve, possibly_wrong


@pytest.mark.parametrize(
    ("inputs", "alpha", "rho"),
    [
        (200, "1/1000", "1/1000"),
        (500, "1/1000", "1/100"),
        (1, "1/1000", "1/100"),
        (97, "1/20", "1/1000"),
        (40, "1/2", "1/3"),
    ],
)
def test_one_fewer_would_not_reach_the_confidence(inputs, alpha, rho):
    a, r = Fraction(alpha), Fraction(rho)
    k = possibly_wrong(inputs, float(a), float(r))
    most = [sum(comb(inputs, i) * a**i * (1 - a) ** (inputs - i) for i in range(m + 1)) for m in (k - 1, k)]
    assert most[0] < 1 - r <= most[1]


@given(
    st.lists(st.sampled_from([-1.0, 0.0, 0.1, 0.25, 0.3, 1.5]), min_size=1),
    st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.25, 0.4, 1.5, 2.0]),
)
def test_the_curve_is_the_share_certified_at_least_that_far(won, radius):
    won = np.array(won)
    x, y = curve(won)
    drawn = y[np.searchsorted(x, radius)] if radius <= x[-1] else 0.0
    assert drawn == pytest.approx(np.mean(won >= radius))
