"""Tables for papers."""

import csv
import dataclasses
import io
import re

import numpy as np
import pytest

from smoothcert.bounds import METHODS
from smoothcert.errors import InputError
from smoothcert.report.baselines import baseline
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


def test_nothing_is_bold_between_runs_on_other_inputs_or_labels(log_run):
    rows = [(0, 0, 0.5), (1, 1, 0.3)]
    runs = [log_run(0.25, rows), log_run(0.5, [(0, 0, 0.5), (2, 1, 0.9)])]
    assert "they are not compared" in markdown(Contents(gather(runs), RADII))
    for other in ([(0, 0, 0.5), (2, 1, 0.9)], [*rows, (1, 1, 0.9)]):
        contents = Contents(gather([runs[0], log_run(len(other), other)]), RADII)
        assert "**" not in markdown(contents)
        assert "textbf" not in latex(contents)
        assert contents.remarks


def test_a_published_table_has_rows_at_its_own_radii_and_its_source(two):
    contents = dataclasses.replace(two, radii=np.array([0.25, 0.3, 0.5]), baseline=baseline("cohen-cifar10"))
    rows = [line.split("|")[1:-1] for line in markdown(contents).splitlines() if line.startswith("| Cohen")]
    assert [cell.strip() for cell in rows[1]] == ["Cohen et al. 2019, σ = 0.25", "", "60.0 %", "", "43.0 %", "", ""]
    assert "1902.02918" in markdown(contents)
    assert r"Cohen et al. 2019, $\sigma$ = 1 &  & 39.0\,\% &  & 34.0\,\% &  & " in latex(contents)
    last = list(csv.DictReader(io.StringIO(comma_separated(contents))))[-1]
    assert (last["basis"], last["at_0.25"], last["at_0.3"], last["average_radius"]) == ("published", "0.39", "", "")
    with pytest.raises(InputError, match=r"unknown baseline 'lee': choose one of cohen-cifar10"):
        baseline("lee")


def test_the_published_rows_are_those_of_the_logs(shared_data):
    """The logs that were published with the paper give its table, to the digits that it prints."""
    table = baseline("cohen-cifar10")
    for sigma in table.certified:
        log = shared_data / "cohen2019" / f"cifar10__resnet110__noise_{sigma}__test__sigma_{sigma}.tsv"
        rows = [line.split("\t") for line in log.read_text().splitlines()[1:]]
        won = np.array([float(radius) if correct == "1" else -1 for _, _, _, radius, correct, _ in rows])
        shares = [(won >= r).mean() for r in table.radii]
        np.testing.assert_array_equal(table.certified[sigma], np.round(shares, 2))


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
