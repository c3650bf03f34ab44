"""An option of a question is written once: from a question with one more field come its option, its record and all."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from interruptible import Items, classify
from smoothcert import InputError, Question, SmoothedClassifier, open_run
from smoothcert.cli.certify import certify_command
from smoothcert.options import option
from smoothcert.store.file import RunFile


@dataclass(frozen=True)
class Remarked(Question):
    """A question with a remark."""

    remark: str = option("none", help="What the auditor wants to remember.")


def test_the_command_has_the_option_with_its_help_and_its_default():
    app = typer.Typer()
    app.command()(certify_command(Remarked))
    text = " ".join(CliRunner(env={"COLUMNS": "200"}).invoke(app, ["--help"]).output.split())
    assert "--remark" in text
    assert "What the auditor wants to remember." in text
    assert "[default: none]" in text


def test_plan_and_certificate_have_the_field(tmp_path):
    app = typer.Typer()
    app.command()(certify_command(Remarked))
    path = tmp_path / "run.smoothcert"
    options = ["--sigma", "0.25", "--limit", "2", "--n", "100", "--engine", "torch", "--batch", "100", "--seed", "0"]
    result = CliRunner().invoke(app, ["digits_cnn", "digits", *options, "--remark", "third shelf", "--out", str(path)])
    assert result.exit_code == 0, result.output
    with RunFile.open_to_read(path) as file:
        assert json.loads(file._meta["plan"])["question"]["remark"] == "third shelf"
    assert len(open_run(path).certificates()) == 2


def test_python_asks_it_as_it_is():
    smoothed = SmoothedClassifier(classify, sigma=0.3, num_classes=3, batch=50, seed=0)
    asked = Remarked.of(n=100, remark="by hand")
    certificate = smoothed.certify(Items()[0][0], asked)
    assert certificate.question.remark == "by hand"
    assert certificate.question.draws.n == certificate.n == 100
    with pytest.raises(InputError, match="there is no option `remark`"):
        smoothed.certify(np.zeros((1, 4, 4)), remark="unknown to a plain question")
