"""Data sets from the user's own modules, found in the working directory."""

import sys
import textwrap

import numpy as np
import pytest
import torch

from smoothcert.data import open_data
from smoothcert.errors import InputError
from smoothcert.imports import import_object

SOURCE = """
    import numpy as np
    import torch
    from torch.utils.data import Dataset, IterableDataset, TensorDataset

    torch.manual_seed(0)
    images = torch.rand(40, 3, 4, 4)
    ready = TensorDataset(images, torch.arange(40) % 5)
    pairs = [(np.full((2, 2), k, np.uint8), k) for k in range(3)]
    number = 3

    def made():
        return ready

    def made_with(argument):
        return ready

    def fails():
        raise RuntimeError("no disk")

    class Squares(Dataset):
        def __len__(self):
            return 3
        def __getitem__(self, row):
            if row == 2:
                raise KeyError("lost")
            return np.full((1, 2, 2), row ** 2, np.float64), np.int64(row)

    class Random(Squares):
        def __getitem__(self, row):
            return torch.rand(3), 0

    class Single(Squares):
        def __getitem__(self, row):
            return torch.ones(3)

    class Mixed(Squares):
        def __getitem__(self, row):
            return np.zeros(3, np.float32 if row else np.uint8), 0

    class Stream(IterableDataset):
        def __iter__(self):
            yield torch.ones(3), 0
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with a module `mine_data` that is forgotten afterwards."""
    (tmp_path / "mine_data.py").write_text(textwrap.dedent(SOURCE))
    (tmp_path / "broken.py").write_text("import mine_data\nraise ValueError('halfway')\n")
    (tmp_path / "script.py").write_text("raise SystemExit('usage: script FILE')\n")
    (tmp_path / "odd.py").write_text("class Odd(BaseException): pass\nraise Odd('usage')\n")
    (tmp_path / "needs_more.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("mine_data", "broken", "script", "odd", "needs_more"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["ready", "made"])
def test_a_torch_dataset_or_a_function_that_returns_it(here, name):
    data = open_data(f"mine_data:{name}")
    torch.manual_seed(0)
    images = torch.rand(40, 3, 4, 4)
    assert len(data) == 40
    assert not data.eight_bit
    np.testing.assert_array_equal([e.array for e in data], images.numpy())
    assert [e.label for e in data] == [k % 5 for k in range(40)]


def test_a_class_and_a_list_of_pairs(here):
    squares = open_data("mine_data:Squares")
    np.testing.assert_array_equal(squares[1].array, np.ones((1, 2, 2), np.float32))
    pairs = open_data("mine_data:pairs")
    assert pairs.eight_bit
    np.testing.assert_array_equal(pairs[2].array, np.full((1, 2, 2), np.float32(2 / 255)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Random", "differs each time it is read"),
        ("Single", "its items must be"),
        ("Stream", "no map-style data set"),
        ("number", "is no map-style data set"),
        ("made_with", "missing 1 required positional argument"),
        ("fails", "RuntimeError: no disk"),
        ("absent", "The module mine_data has no 'absent'"),
    ],
)
def test_what_is_no_data_set_is_refused(here, name, message):
    with pytest.raises(InputError, match=message):
        open_data(f"mine_data:{name}")


def test_failures_and_mixed_types_name_their_row(here):
    with pytest.raises(InputError, match="row 2 failed with KeyError: 'lost'"):
        open_data("mine_data:Squares")[2]
    with pytest.raises(InputError, match=r"Row 1 .* is float32 and row 0 is uint8"):
        open_data("mine_data:Mixed")[1]


def test_the_fingerprint_follows_content(here):
    first = open_data("mine_data:ready").fingerprint
    assert open_data("mine_data:made").fingerprint == first
    sys.modules["mine_data"].images[0, 0, 0, 0] += 1
    assert open_data("mine_data:ready").fingerprint != first


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mine_data", "write it as package.module:name"),
        (":name", "write it as package.module:name"),
        ("mine_data:", "write it as package.module:name"),
        ("absent_module:x", "There is no module absent_module"),
        ("mine_data.sub:x", "There is no module mine_data.sub|mine_data.sub failed"),
        ("broken:x", "Importing broken failed with ValueError: halfway"),
        ("script:x", "Importing script failed with SystemExit: usage: script FILE"),
        ("odd:x", "Importing odd failed with Odd: usage"),
        (
            "needs_more:x",
            "Importing needs_more failed with ModuleNotFoundError: .*a_module_that_is_not_there",
        ),
    ],
)
def test_names_that_cannot_be_imported_say_why(here, spec, message):
    with pytest.raises(InputError, match=message):
        import_object(spec)


def test_names_inside_names_are_found(here):
    assert import_object("mine_data:Squares.__len__")(None) == 3
