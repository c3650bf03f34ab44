"""The gate: what it counts, what it claims about unseen inputs, and how it ends."""

import json
from fractions import Fraction
from math import comb

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from smoothcert import InputError, RunError, SmoothedClassifier
from smoothcert.cli.gate import gate
from smoothcert.report.gate import Gate

app = typer.Typer()
app.command()(gate)


@pytest.fixture
def half(log_run):
    """Five inputs of ten have the right class at 0.25; one is wrong, one abstains, three are nearer."""
    return log_run(0.5, [(1, 1, 0.25)] * 5 + [(0, 1, 0.9), (0, -1, 0.0)] + [(1, 1, 0.249)] * 3)


@pytest.mark.parametrize(
    ("radius", "at_least", "passed"), [(0.25, 0.5, True), (0.25, 0.51, False), (0.0, 0.8, True), (0.2, 0.8, True)]
)
def test_inputs_count_with_the_right_class_at_the_radius(half, radius, at_least, passed):
    assert Gate(radius, at_least).judge(half).passed is passed


def test_the_share_of_unseen_inputs_is_the_bound_less_alpha(half):
    """The bound p has P(Bin(10, p) ≥ 5) = 1 − confidence, in exact arithmetic to many digits."""
    verdict = Gate(0.25, 0.2, 0.95).judge(half)
    p = Fraction(verdict.share) + Fraction(half.plan.question.alpha)
    tail = sum(comb(10, k) * p**k * (1 - p) ** (10 - k) for k in range(5, 11))
    assert float(tail) == pytest.approx(0.05, rel=1e-9)
    assert verdict.passed
    assert not Gate(0.25, 0.2225, 0.95).judge(half).passed
    assert Gate(0.95, 0.0, 0.95).judge(half).share == 0


def test_the_claim_about_unseen_inputs_is_true_as_often_as_it_says():
    """A source whose robust share is 0.7, certificates that are wrong as often as α allows: every bound counted."""
    from smoothcert.bounds import clopper_pearson_lower

    m, robust, alpha, confidence = 40, 0.7, 0.05, 0.9
    certified = robust + (1 - robust) * alpha  # each of the others gets a wrong certificate with probability α
    k = np.arange(m + 1)
    claimed = np.maximum(0, clopper_pearson_lower(k, m, 1 - confidence) - alpha)
    chance = np.array([comb(m, i) * certified**i * (1 - certified) ** (m - i) for i in k])
    assert chance[claimed <= robust].sum() >= confidence


def test_an_unfinished_run_is_not_judged(tmp_path):
    def stop(draws, done):
        if done > 0.5:
            raise KeyboardInterrupt

    data = [(np.full((1, 2, 2), k, np.float32), k % 2) for k in range(4)]
    smoothed = SmoothedClassifier(lambda x: x[:, 0, 0, :2], sigma=0.5, num_classes=2, batch=100)
    with pytest.raises(KeyboardInterrupt):
        smoothed.certify_dataset(data, out=tmp_path / "run", n=1000, on_progress=stop)
    from smoothcert import open_run

    with pytest.raises(RunError, match=r"is not finished .*no fair sample"):
        Gate(0.1, 0.5).judge(open_run(tmp_path / "run"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"radius": -1}, "`radius` is a number of at least 0"),
        ({"at_least": 60}, "`at_least` is a share between 0 and 1"),
        ({"confidence": 95}, "`confidence` lies strictly between 0 and 1"),
        ({"radius": float("nan")}, "`radius`"),
    ],
)
def test_a_wrong_question_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        Gate(**{"radius": 0.25, "at_least": 0.6, **change})


def test_the_command_ends_as_it_says(half):
    asked = [str(half.path), "--radius", "0.25", "--confidence", "0.95", "--at-least"]
    passed, failed = (CliRunner().invoke(app, [*asked, share]) for share in ("0.2", "0.6"))
    assert (passed.exit_code, failed.exit_code) == (0, 1)
    assert passed.output.startswith("Passed: 5 of 10 inputs certified at radius 0.25, so with confidence 0.95")
    assert failed.output.count("\n") == 1
    verdict = json.loads(CliRunner().invoke(app, [*asked, "0.6", "--json"]).output)
    assert verdict["passed"] is False
    assert verdict["gate"] == {"radius": 0.25, "at_least": 0.6, "confidence": 0.95}
    assert (verdict["certified"], verdict["inputs"]) == (5, 10)
