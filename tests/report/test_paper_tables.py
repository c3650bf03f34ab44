"""Tables for papers."""

import csv
import io
import re

import numpy as np
import pytest

from smoothcert.bounds import METHODS
from smoothcert.errors import InputError
from smoothcert.report.contents import Contents
from smoothcert.report.curves import gather
from smoothcert.report.tables import comma_separated, latex, markdown
from smoothcert.summary import certified_radii

RADII = np.array([0.25, 0.5])


@pytest.fixture
def two(log_run):
    runs = [
        log_run(0.25, [(0, 0, 0.5), (1, 1, 0.3), (2, 0, 0.9), (1, -1, 0.0)]),
        log_run(0.5, [(0, 0, 0.7), (1, 1, 0.6), (2, 2, 0.1), (1, 0, 0.3)]),
    ]
    return Contents(gather(runs), RADII)


def test_the_best_of_each_column_is_bold(two):
    rows = [line.split("|")[1:-1] for line in markdown(two).splitlines() if line.startswith("| σ")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["σ = 0.25", "50.0 %", "**50.0 %**", "25.0 %", "0.200", "25.0 %"],
        ["σ = 0.5", "**75.0 %**", "**50.0 %**", "**50.0 %**", "**0.350**", "0.0 %"],
    ]


def test_the_whole_set_is_spoken_of_beside_the_single_input(two):
    assert "at most 1 of them is, so that every accuracy less 0.2500 holds" in markdown(two)


def test_csv_holds_the_figures_to_the_last_digit(squares):
    rows = list(csv.DictReader(io.StringIO(comma_separated(Contents(gather([squares]), RADII)))))
    assert [row["name"] for row in rows] == ["duels", *(f"{m} (labels)" for m in METHODS)]
    for row in rows:
        won = certified_radii(squares.certificates(row["method"]), squares.labels)
        assert float(row["at_0.5"]) == (won >= 0.5).mean()
        assert float(row["average_radius"]) == won.clip(0).mean()


def test_names_cannot_become_markup_or_formulas(squares):
    name = "=HYPERLINK(1)|_x_ 50% & \\input{y} <b>"
    contents = Contents(gather([squares], ["cpm"], names=[name]), RADII)
    assert next(csv.reader(io.StringIO(comma_separated(contents).split("\n", 1)[1])))[0] == "'" + name
    row = next(line for line in markdown(contents).splitlines() if "HYPERLINK" in line)
    assert len(re.findall(r"(?<!\\)\|", row)) == 7
    assert "<b>" not in row.replace("\\<", "")
    assert r"\_x\_ 50\% \& \textbackslash{}input\{y\}" in latex(contents)


def test_two_runs_are_compared(two):
    text = markdown(two)
    assert "σ = 0.25 has the larger certified radius on 0, σ = 0.5 on 3 (sign test, p = 0.25)." in text
    assert "Inputs that only σ = 0.5 certifies at 0.5: 1" in text
    assert text.count("| 0.5 | 0 | 1 | 1 |") == 1
    assert latex(two).count(r"\begin{tabular}") == 2


def test_a_log_without_votes_cannot_be_certified_by_another_method(log_run):
    with pytest.raises(InputError, match="radii and no votes"):
        gather([log_run(0.25, [(0, 0, 0.5)])], ["cpm"])
