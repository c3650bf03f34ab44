"""Every row that leaves the room is a finite float32 array of one shape with a class number."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from smoothcert.data import Dataset, open_data, select
from smoothcert.errors import InputError


def saved(path: Path, x, y) -> Dataset:
    file = path / "data.npz"
    np.savez(file, x=np.asarray(x), y=np.asarray(y))
    return open_data(str(file))


@given(
    hnp.arrays(
        np.uint8,
        st.tuples(st.integers(1, 3), st.integers(4, 9), st.integers(4, 9), st.sampled_from([1, 3])),
    )
)
def test_colour_images_become_channels_first_multiples_of_1_255(tmp_path_factory, images):
    data = saved(tmp_path_factory.mktemp("npz"), images, np.zeros(len(images), int))
    assert data.eight_bit
    for row, image in enumerate(images):
        array = data[row].array
        assert array.dtype == np.float32
        assert array.shape == data.shape == (image.shape[2], image.shape[0], image.shape[1])
        for h, w, c in np.ndindex(*image.shape):
            assert array[c, h, w] == np.float32(image[h, w, c] / 255)


def test_channels_first_bytes_and_grey_images_keep_their_axes(tmp_path):
    planes = np.random.default_rng(0).integers(0, 256, (2, 3, 5, 7), dtype=np.uint8)
    np.testing.assert_array_equal(saved(tmp_path, planes, [0, 1])[1].array, planes[1].astype(np.float32) / 255)
    grey = saved(tmp_path, planes[:, 0], [0, 1])
    assert grey.shape == (1, 5, 7)


def test_floats_pass_through_unchanged(tmp_path):
    x = np.random.default_rng(0).normal(size=(3, 11)) * 100
    data = saved(tmp_path, x, [2.0, 0.0, 1.0])
    assert not data.eight_bit
    np.testing.assert_array_equal([example.array for example in data], x.astype(np.float32))
    assert [(example.id, example.label) for example in data] == [("0", 2), ("1", 0), ("2", 1)]


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_values_that_are_not_finite_name_the_row(tmp_path, bad):
    x = np.zeros((4, 2, 2))
    x[2, 1, 1] = bad
    data = saved(tmp_path, x, [0, 0, 0, 0])
    assert data[1].label == 0
    with pytest.raises(InputError, match=r"Row 2 of .*data\.npz holds NaN or infinite"):
        data[2]


@pytest.mark.parametrize("label", [-1, 0.5, np.nan, np.inf])
def test_labels_that_name_no_class_are_refused(tmp_path, label):
    with pytest.raises(InputError, match=r"Row 0 of .* has the label"):
        saved(tmp_path, np.zeros((1, 4)), np.array([label]))


def test_labels_that_are_words_or_vectors_are_refused(tmp_path):
    for labels in (["cat"], [[0.0, 1.0]]):
        with pytest.raises(InputError, match="whole numbers"):
            saved(tmp_path, np.zeros((1, 4)), labels)


def test_integers_without_a_scale_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"Row 0 .* is int64: make it uint8"):
        saved(tmp_path, np.zeros((2, 3, 4, 4), np.int64), [0, 1])


def test_rows_out_of_range_end_iteration(tmp_path):
    data = saved(tmp_path, np.zeros((3, 2)), [0, 1, 2])
    assert len(list(data)) == 3
    for row in (-1, 3):
        with pytest.raises(IndexError):
            data[row]


@given(st.integers(1, 40), st.integers(1, 50), st.none() | st.integers(1, 50))
def test_selection_is_that_of_cohens_loop(length, skip, limit):
    rows = [row for row in range(length) if row % skip == 0]
    assert list(select(range(length), skip, limit)) == (rows if limit is None else rows[:limit])


@pytest.mark.parametrize("wrong", [{"skip": 0}, {"skip": -2}, {"limit": 0}])
def test_selection_of_nothing_is_refused(wrong):
    with pytest.raises(InputError, match="at least 1"):
        select(range(5), **wrong)
