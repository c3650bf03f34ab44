"""Figures for papers."""

import sys

import pytest

from smoothcert.errors import InputError
from smoothcert.report.write import write_report


@pytest.mark.parametrize(("kind", "magic"), [("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_figure_is_the_same_file_every_time(squares, tmp_path, kind, magic):
    pytest.importorskip("matplotlib")
    paths = [write_report([squares], tmp_path / f"{i}.{kind}")[0] for i in range(2)]
    first, second = (path.read_bytes() for path in paths)
    assert first.startswith(magic)
    assert first == second


def test_without_matplotlib_the_extra_is_named(squares, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"smoothcert\[report\]"):
        write_report([squares], tmp_path / "figure.pdf")
    assert not list(tmp_path.iterdir())
