"""NumPy archives under the names people use; never their pickles."""

import os

import numpy as np
import pytest

from smoothcert.data import open_data
from smoothcert.errors import InputError


@pytest.mark.parametrize("keys", [("x", "y"), ("images", "labels"), ("data", "target"), ("x_test", "y_test")])
def test_each_usual_pair_of_names(tmp_path, keys):
    values = np.random.default_rng(0).random((5, 1, 4, 4)).astype(np.float32)
    np.savez_compressed(tmp_path / "d.npz", **dict(zip(keys, (values, np.arange(5)), strict=True)), other=np.ones(3))
    data = open_data(str(tmp_path / "d.npz"))
    np.testing.assert_array_equal([e.array for e in data], values)
    assert [e.label for e in data] == [0, 1, 2, 3, 4]


def test_labels_in_a_column_are_read_as_keras_saves_them(tmp_path):
    np.savez(tmp_path / "d.npz", x_test=np.zeros((3, 32, 32, 3), np.uint8), y_test=np.array([[4], [0], [9]]))
    data = open_data(str(tmp_path / "d.npz"))
    assert data.shape == (3, 32, 32)
    assert [e.label for e in data] == [4, 0, 9]


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_pickled_objects_are_refused_and_nothing_runs(tmp_path):
    payload = np.array([Payload(tmp_path / "executed")], dtype=object)
    np.savez(tmp_path / "inside.npz", x=payload, y=np.array([0]))
    (tmp_path / "bare.npz").write_bytes(payload.dumps())
    for name in ("inside", "bare"):
        with pytest.raises(InputError, match=rf"{name}\.npz cannot be read.*Python objects"):
            open_data(str(tmp_path / f"{name}.npz"))
    assert not (tmp_path / "executed").exists()


def test_damaged_archives_are_refused(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(0).random((50, 8)), y=np.zeros(50))
    whole = (tmp_path / "d.npz").read_bytes()
    for broken in (whole[: len(whole) // 2], whole[:-1], b"", b"text"):
        (tmp_path / "d.npz").write_bytes(broken)
        with pytest.raises(InputError, match="cannot be read"):
            open_data(str(tmp_path / "d.npz"))


def test_an_array_under_an_archives_name_is_refused(tmp_path):
    with (tmp_path / "d.npz").open("wb") as file:
        np.save(file, np.zeros((3, 4)))
    with pytest.raises(InputError, match="cannot be read"):
        open_data(str(tmp_path / "d.npz"))


def test_other_names_and_other_lengths_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", inputs=np.zeros((3, 4)), y=np.zeros(3))
    with pytest.raises(InputError, match="needs arrays named x/y or images/labels"):
        open_data(str(tmp_path / "a.npz"))
    np.savez(tmp_path / "b.npz", x=np.zeros((3, 4)), y=np.zeros(4))
    with pytest.raises(InputError, match=r"shape \(3, 4\) and labels of shape \(4,\)"):
        open_data(str(tmp_path / "b.npz"))
