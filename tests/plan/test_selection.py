"""Which inputs: every k-th, so many at most, or one of the parts that make up all of these."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert import InputError
from smoothcert.data import as_dataset
from smoothcert.plan import Selection
from smoothcert.plan.selection import shard_of


def of_size(n):
    return as_dataset([(np.full((1, 2, 2), i, dtype=np.float32), 0) for i in range(n)])


@given(size=st.integers(1, 60), skip=st.integers(1, 9), limit=st.none() | st.integers(1, 60))
def test_every_kth_input_from_the_first_and_no_more_than_asked_for(size, skip, limit):
    rows = list(Selection(skip=skip, limit=limit).rows(of_size(size)))
    assert rows[0] == 0
    assert all(b - a == skip for a, b in pairwise(rows))
    assert rows[-1] < size
    assert len(rows) == limit or (rows[-1] + skip >= size and (limit is None or len(rows) < limit))


@given(st.data(), st.integers(1, 60), st.integers(1, 5))
def test_shards_are_all_inputs_each_in_one(data, size, skip):
    dataset = of_size(size)
    whole = list(Selection(skip=skip).rows(dataset))
    k = data.draw(st.integers(1, len(whole)))
    parts = [list(Selection(skip=skip, shard=(i, k)).rows(dataset)) for i in range(1, k + 1)]
    assert sorted(row for part in parts for row in part) == whole
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_more_shards_than_inputs_are_refused():
    with pytest.raises(InputError, match="there are 3 inputs: split them into at most as many shards, not 4"):
        Selection(shard=(1, 4)).rows(of_size(3))


def test_what_is_found_is_kept():
    dataset = of_size(7)
    found = Selection(skip=2, shard=(1, 2)).of(dataset)
    assert (found.total, found.data, found.preprocessing) == (2, dataset.fingerprint, dataset.preprocessing)
    assert (found.skip, found.shard) == (2, (1, 2))


@pytest.mark.parametrize("shard", [(0, 3), (4, 3), (1, 2, 3), (1,), "2/8", [2, 8], (1.0, 2), (True, 2), ("1", "2")])
def test_what_is_no_shard(shard):
    with pytest.raises(InputError, match="a shard is i/k with 1 ≤ i ≤ k, such as 2/8"):
        Selection(shard=shard)


def test_a_shard_as_it_is_written():
    assert shard_of("2/8") == (2, 8)
    for text in ("2", "/", "2/", "a/b", "²/3", "-1/3", "1/2/3"):
        with pytest.raises(InputError, match="is no shard such as 2/8"):
            shard_of(text)
