"""Every method's statement holds with probability at least 1 − α, whatever p: all outcomes, added up."""

import numpy as np
import pytest

from smoothcert.bounds import METHODS
from smoothcert.experiments.counter_example import counter_example, fixed_rival
from smoothcert.experiments.coverage import claims_of, worst_case

CASES = [(2, 12), (2, 40), (3, 5), (3, 15), (4, 6), (4, 10)]
SELECTIONS = {2: [[3, 2]], 3: [[3, 2, 1], [9, 1, 1]], 4: [[4, 3, 2, 1], [9, 1, 1, 1], [5, 4, 4, 4], [9, 1, 0, 0]]}


def worst(method, selection, n, alpha):
    def claims(counts):
        return method(np.broadcast_to(selection, counts.shape), counts, alpha).t

    return worst_case(claims, n, len(selection))


@pytest.mark.parametrize("alpha", [0.1, 0.05, 0.001])
@pytest.mark.parametrize(("c", "n"), CASES)
@pytest.mark.parametrize("name", METHODS)
def test_coverage_is_at_least_one_minus_alpha(name, c, n, alpha):
    for selection in SELECTIONS[c] if name == "cpm" else SELECTIONS[c][:1]:
        found, p = worst(METHODS[name], np.array(selection), n, alpha)
        assert found >= 1 - alpha - 1e-12, f"{found} at {p}"


def test_a_rival_fixed_in_advance_fails_the_same_test():
    found, p = worst_case(claims_of(fixed_rival, 0.05), 10, 3)
    assert found < 0.81
    assert p[2] > p[1]


def test_the_paper_s_counter_example():
    """At ten draws a rival fixed in advance still gets away with it; at forty it is wrong nine times in ten."""
    fixed, *others = counter_example()
    assert fixed.coverage_of_more < 0.1
    assert fixed.worst < 0.81
    for row in others:
        assert min(row.coverage, row.coverage_of_more, row.worst) >= 0.95
