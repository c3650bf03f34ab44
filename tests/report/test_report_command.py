"""smoothcert report"""

import pytest
import typer
from typer.testing import CliRunner

from smoothcert.cli.report import report
from smoothcert.report.write import FORMATS

app = typer.Typer()
app.command()(report)


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind not in ("pdf", "svg", "png")])
def test_each_format_is_written_under_its_ending(squares, tmp_path, kind):
    out = tmp_path / f"report{FORMATS[kind]}"
    result = CliRunner().invoke(app, [str(squares.path), "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert "Wrote" in result.output
    assert out.stat().st_size > 200


def test_two_runs_are_compared_in_a_sentence(log_run, tmp_path):
    runs = [str(log_run(sigma, [(0, 0, sigma), (1, 1, 0.1)]).path) for sigma in (0.25, 0.5)]
    result = CliRunner().invoke(app, [*runs, "--format", "csv", "-o", str(tmp_path / "r.txt"), "--radii", "0.2,0.4"])
    assert result.exit_code == 0, result.output
    assert "σ = 0.5 on 1" in " ".join(result.output.split())
    assert (tmp_path / "r.txt").read_text().splitlines()[0].split(",")[9:11] == ["at_0.2", "at_0.4"]


def test_a_risk_of_huge_odds_is_told_as_it_is(squares, tmp_path):
    out = tmp_path / "r.html"
    result = CliRunner().invoke(app, [str(squares.path), "-o", str(out), "--alpha", "1e-100"])
    assert result.exit_code == 0, result.output
    assert "proof is wrong is at most 1e-100." in out.read_text()
