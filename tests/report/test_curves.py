"""Curves are computed once a report."""

from collections import Counter

import pytest

from smoothcert import open_run
from smoothcert.report import contents, curves
from smoothcert.report.write import write_report
from smoothcert.store import Run


@pytest.fixture
def calls(monkeypatch):
    """How often each step of the way from votes to figures is taken."""
    found = Counter()

    def count(home, name):
        compute = getattr(home, name)

        def counted(*args):
            found[name] += 1
            return compute(*args)

        monkeypatch.setattr(home, name, counted)

    count(Run, "_certify")
    count(curves, "certified_radii")
    count(curves, "curve")
    count(contents, "summary_at")
    return found


@pytest.mark.parametrize("kind", ["html", "markdown", "latex", "csv"])
def test_a_report_computes_radii_and_summary_of_each_method_once(squares, tmp_path, calls, kind):
    write_report([open_run(squares.path)], tmp_path / "report", kind)
    assert calls == {"_certify": 6, "certified_radii": 6, "summary_at": 6}


def test_a_figure_computes_each_curve_once(squares, tmp_path, calls):
    pytest.importorskip("matplotlib")
    write_report([open_run(squares.path), open_run(squares.path)], tmp_path / "figure.svg", names=["a", "b"])
    assert calls == {"_certify": 2, "certified_radii": 2, "curve": 2}
