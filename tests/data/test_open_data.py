"""What DATA may be, and what is said when it is something else."""

import subprocess
import sys

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
        with pytest.raises(InputError, match="`resize` and `crop` are for encoded images"):
            open_data(path, **options)
    with pytest.raises(InputError, match="`classes` is for image folders"):
        open_data(path, classes=tmp_path / "classes.txt")


def test_an_empty_data_set_is_refused(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.zeros((0, 4)), y=np.zeros(0))
    with pytest.raises(InputError, match="nothing in"):
        open_data(str(tmp_path / "d.npz"))


def test_all_but_parquet_works_without_pyarrow(tmp_path):
    """In a process that has none: certificates of an npz file go out as csv, and parquet is one sentence both ways."""
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 4)), y=np.zeros(2))
    (tmp_path / "d.parquet").touch()
    script = """if True:
        import sys
        sys.modules["pyarrow"] = None
        import smoothcert.cli
        from pathlib import Path
        from smoothcert import InputError, SmoothedClassifier
        from smoothcert.store.export import export_run
        smoothed = SmoothedClassifier(lambda x: x[:, :2], sigma=0.5, num_classes=2, seed=0)
        run = smoothed.certify_dataset("d.npz", n=10, out=Path("run"))
        export_run(run, Path("out.csv"), "csv")
        for wrong in (
            lambda: smoothcert.data.open_data("d.parquet"),
            lambda: export_run(run, Path("out.parquet"), "parquet"),
        ):
            try:
                wrong()
            except InputError as error:
                print(error)
    """
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == 2 * "parquet files need pyarrow: pip install 'smoothcert[parquet]'.\n", done.stderr
    assert (tmp_path / "out.csv").exists()
    assert not (tmp_path / "out.parquet").exists()
