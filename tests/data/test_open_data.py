"""What DATA may be, and what is said when it is something else."""

import numpy as np
import pytest

from smoothcert.data import open_data
from smoothcert.errors import InputError


@pytest.mark.parametrize("name", ["absent.parquet", "absent/folder", "no such thing"])
def test_a_missing_path_is_named_with_what_data_can_be(tmp_path, name):
    path = str(tmp_path / name)
    with pytest.raises(InputError, match=rf"no data at .*{path}.*image folder.*\.npz.*package\.module:dataset"):
        open_data(path)


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "data.csv").write_text("1,2,3\n")
    with pytest.raises(InputError, match=r"data\.csv is of no known kind.*\.parquet"):
        open_data(str(tmp_path / "data.csv"))


def test_options_that_would_be_ignored_are_refused(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 3, 8, 8)), y=np.zeros(2))
    path = str(tmp_path / "d.npz")
    for options in ({"resize": 4}, {"crop": 4}):
        with pytest.raises(InputError, match="--resize and --crop are for encoded images"):
            open_data(path, **options)
    with pytest.raises(InputError, match="--classes is for image folders"):
        open_data(path, classes=tmp_path / "classes.txt")


def test_an_empty_data_set_is_refused(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.zeros((0, 4)), y=np.zeros(0))
    with pytest.raises(InputError, match="nothing in"):
        open_data(str(tmp_path / "d.npz"))
