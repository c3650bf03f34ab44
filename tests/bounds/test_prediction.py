"""The class of the smoothed classifier: SciPy's binomial test, and the error by exact enumeration."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from smoothcert import ABSTAIN
from smoothcert.bounds.prediction import top_class


@given(st.lists(st.integers(0, 2000), min_size=2, max_size=6), st.sampled_from([0.1, 0.001, 1e-9]))
def test_is_the_two_sided_binomial_test_of_the_top_two(counts, alpha):
    b, a = sorted(counts)[-2:]
    p_value = stats.binomtest(a, a + b).pvalue if a + b else 1.0
    expected = ABSTAIN if p_value > alpha else int(np.argmax(counts))
    if abs(p_value - alpha) > 1e-12:
        assert top_class(np.array([counts]), alpha)[0] == expected


@pytest.mark.parametrize("alpha", [0.1, 0.05, 0.01])
def test_a_wrong_class_is_returned_with_probability_at_most_alpha(alpha):
    """Every outcome of n draws from three classes, for every p on a grid: class 0 is never the top one."""
    n = 25
    outcomes = np.array([(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)])
    answer = top_class(outcomes, alpha)
    for p1 in np.linspace(0, 0.5, 26):
        for rest in np.linspace(p1, 1 - p1, 9):
            p = np.array([p1, rest, 1 - p1 - rest]).clip(0)
            wrong = (answer != ABSTAIN) & (p[answer] < p.max())
            assert stats.multinomial.pmf(outcomes[wrong], n, p / p.sum()).sum() <= alpha
