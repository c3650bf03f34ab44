"""Two runs on the same inputs."""

from itertools import product

import numpy as np
import pytest

from smoothcert.report.curves import gather
from smoothcert.report.paired import pair, sign_test


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (0, 5), (3, 3), (9, 2), (1, 10), (6, 4)])
def test_p_is_the_share_of_coin_flips_at_least_as_uneven(wins, losses):
    flips = [abs(2 * sum(flip) - wins - losses) for flip in product((0, 1), repeat=wins + losses)]
    assert sign_test(wins, losses) == pytest.approx(np.mean([f >= abs(wins - losses) for f in flips]))


def test_differences_are_found_by_input(log_run):
    a = log_run(0.25, [(0, 0, 0.5), (1, 1, 0.2), (2, 0, 0.9), (1, 1, 0.3)])
    b = log_run(0.5, [(0, 0, 0.1), (1, 1, 0.6), (2, 2, 0.4), (1, 1, 0.3)])
    paired = pair(gather([a, b]), np.array([0.25, 0.5]))
    assert paired.inputs == 4
    assert [(c.first, c.second) for c in paired.certified] == [(["0"], ["1", "2"]), (["0"], ["1"])]
    assert (paired.larger.first, paired.larger.second) == (["0"], ["1", "2"])
    assert paired.larger.p == sign_test(1, 2) == 1.0


def test_common_inputs_are_enough(log_run):
    a = log_run(0.25, [(0, 0, 0.5), (1, 1, 0.2)], ids=["x", "y"])
    b = log_run(0.5, [(1, 1, 0.1), (2, 2, 0.6)], ids=["y", "z"])
    paired = pair(gather([a, b]), np.array([0.15]))
    assert (paired.inputs, paired.certified[0].first) == (1, ["y"])


def test_inputs_with_other_labels_are_not_the_same_inputs(log_run):
    a, b = log_run(0.25, [(0, 0, 0.5)]), log_run(0.5, [(1, 1, 0.5)])
    assert pair(gather([a, b]), np.array([0.25])) is None
