"""Algorithm 1 of the paper."""

from time import process_time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from smoothcert import certify_counts
from smoothcert.bounds import cpm, partition_classes
from smoothcert.bounds.binomial import lower_quantile, upper_quantile

votes = st.lists(st.integers(0, 60), min_size=2, max_size=12).filter(any)


@given(votes)
def test_buckets_partition_the_classes(selection):
    buckets = partition_classes(selection)
    assert sorted(k for bucket in buckets for k in bucket) == list(range(len(selection)))
    assert all(len(bucket) == 1 for bucket in buckets[:-1])
    assert all(buckets)


@given(votes)
def test_the_loop_stops_at_the_first_meta_class_that_i2_outweighs(selection):
    buckets = partition_classes(selection)
    order = sorted(range(len(selection)), key=lambda k: (-selection[k], k))
    i2 = selection[order[1]]
    for singles in range(2, len(order) + 1):
        if sum(selection[k] for k in order[singles:]) <= i2:
            break
    meta = sorted(order[singles:])
    assert buckets == [[k] for k in order[:singles]] + ([meta] if meta else [])


def test_two_classes_have_no_meta_class():
    assert partition_classes([1, 5]) == [[1], [0]]


def test_ties_go_to_the_lowest_class():
    assert partition_classes([5, 5, 5, 5]) == [[0], [1], [2], [3]]
    assert partition_classes([0, 9, 0, 0]) == [[1], [0], [2, 3]]


def test_radius_of_a_worked_example():
    """Buckets I1 = 0, I2 = 1, M = {2, 3, 4}: three levels of α/3, and M is the fullest rival."""
    certificate = certify_counts([60, 20, 9, 8, 3], [6000, 1000, 900, 800, 1300], sigma=0.5, method="cpm")
    level = 0.001 / 3
    expected = 0.25 * (lower_quantile(6000, 10000, level) - upper_quantile(3000, 10000, level))
    np.testing.assert_allclose(certificate.radius, expected, rtol=1e-14)
    assert certificate.num_buckets == 3
    assert certificate.prediction == 0


@given(votes, st.data())
def test_cpm_never_exceeds_union(selection, data):
    """Its fullest bucket holds at least the largest rival's votes, and its level α/c* is at most α/2."""
    size = len(selection)
    estimation = data.draw(st.lists(st.integers(0, 600), min_size=size, max_size=size).filter(any))
    cpm, union = (certify_counts(selection, estimation, sigma=1.0, method=name).radius for name in ("cpm", "union"))
    assert cpm <= union + 1e-12


def test_classes_without_votes_take_no_time():
    """A run file of a few kilobytes may have 52 million counts."""
    selections = np.zeros((10, 1 << 20), dtype=np.int64)
    selections[:, [3, 9]] = 70, 30
    began = process_time()
    bound = cpm(selections, 10 * selections, 0.001)
    assert process_time() - began < 2
    assert bound.num_buckets.tolist() == [3] * 10
