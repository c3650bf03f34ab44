"""scikit-learn's digits, split once and for all."""

import sys

import numpy as np
import pytest

from smoothcert.data import digits, open_data
from smoothcert.errors import InputError

sklearn_datasets = pytest.importorskip("sklearn.datasets", reason="the extra smoothcert[demo] is not installed")


def test_the_two_parts_are_all_digits_once():
    train, test = digits(train=True), open_data("digits")
    assert (len(train), len(test)) == (1497, 300)
    images, labels = sklearn_datasets.load_digits(return_X_y=True)
    both = [[*(16 * e.array).astype(int).ravel().tolist(), e.label] for part in (train, test) for e in part]
    assert sorted(both) == sorted(np.column_stack([images.astype(int), labels]).tolist())


def test_inputs_are_sixteenths():
    data = open_data("digits")
    assert data.shape == (1, 8, 8)
    assert not data.eight_bit
    assert data.levels == 16
    assert data.classes == tuple("0123456789")
    values = np.unique([e.array for e in data])
    np.testing.assert_array_equal(values, np.arange(17) / 16)


def test_the_split_is_scikit_learns_own_with_seed_0():
    from sklearn.model_selection import train_test_split

    images, labels = sklearn_datasets.load_digits(return_X_y=True)
    parts = train_test_split(images, labels, test_size=300, random_state=0)
    for data, x, y in ((digits(train=True), parts[0], parts[2]), (digits(train=False), parts[1], parts[3])):
        np.testing.assert_array_equal([16 * e.array.ravel() for e in data], x)
        np.testing.assert_array_equal([e.label for e in data], y)


def test_the_fingerprint_is_the_same_each_time_and_another_for_the_other_part():
    assert digits(train=False).fingerprint == digits(train=False).fingerprint != digits(train=True).fingerprint


def test_without_scikit_learn_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match=r"pip install 'smoothcert\[demo\]'"):
        open_data("digits")
