"""What is certified is what is deployed: one classifier, by its own votes, in all that is asked."""

import csv
import inspect

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import smoothcert as sc
from smoothcert import attacks
from smoothcert.cli import app


class Divided(torch.nn.Module):
    """Above ½, class 0 leads class 1 by 0.2: barely. Below, class 1 leads, the further the more.

    At u = 0.75 and σ = 0.5 a draw lies above ½ with probability Φ(½) = 0.69, so most labels are 0. Its softmax there
    is 0.55 and 0.45, below it is nearly 0 and 1: class 1 has 0.69 · 0.45 + 0.31 = 0.62 of the shares, or a little less.
    """

    def forward(self, x):
        u = x.flatten(1)[:, 0]
        lead = 40 * torch.relu(0.5 - u) - 0.2
        return torch.stack([torch.zeros_like(u), lead, torch.full_like(u, -20.0)], 1)


LABELS, SHARES = 0, 1
DIVIDED = np.array([0.75, 0.5, 0.5, 0.5], dtype=np.float32).reshape(1, 2, 2)
KINDS = [
    pytest.param(sc.Duels(), LABELS, id="duels"),
    pytest.param(sc.Labels(), LABELS, id="labels"),
    pytest.param(sc.Margins(1.0), SHARES, id="margins"),
    pytest.param(sc.Softmax(), SHARES, id="softmax"),
    pytest.param(sc.Sparsemax(), SHARES, id="sparsemax"),
]


@pytest.fixture
def model():
    return Divided()


@pytest.fixture
def data(tmp_path):
    """The input on which votes disagree, and one on either side on which they do not."""
    x = np.stack([DIVIDED, DIVIDED - 1.5, DIVIDED + 1.5])
    np.savez(tmp_path / "data.npz", x=x, y=[0, 1, 0])
    return tmp_path / "data.npz"


def smoothed_by(model, votes, seed=0):
    return sc.SmoothedClassifier(
        model, sigma=0.5, num_classes=3, votes=votes, noise="gaussian", engine="torch", batch=500, seed=seed
    )


def test_the_two_classifiers_differ(model):
    """By a sum over the quantiles of the noise."""
    normal = torch.distributions.Normal(0.75, 0.5).icdf(torch.linspace(0.0005, 0.9995, 1000))
    scores = model(normal[:, None])
    assert scores.argmax(1).bincount().argmax() == LABELS
    assert scores.softmax(1).mean(0).argmax() == SHARES


@pytest.mark.parametrize(("votes", "expected"), KINDS)
def test_whatever_is_asked_the_class_is_that_of_the_votes(model, votes, expected):
    smoothed = smoothed_by(model, votes)
    certificate = smoothed.certify(DIVIDED, n=2_000)
    assert certificate.prediction == expected
    assert certificate.radius > 0
    assert smoothed.predict(DIVIDED) == expected
    assert smoothed.count(DIVIDED, 1_000).argmax() == expected


@pytest.mark.parametrize(("votes", "expected"), KINDS)
def test_attacks_judge_by_these_votes(model, votes, expected):
    """The other class is lost without a perturbation, and a certificate of it is broken at once."""
    smoothed, other = smoothed_by(model, votes), 1 - expected
    radius = smoothed.certify(DIVIDED, n=2_000).radius
    own, lost = (attacks.smoothed_pgd(smoothed, [DIVIDED], [k], 0.5 * radius, steps=5) for k in (expected, other))
    assert np.isinf(own.norms).all()
    assert lost.norms.tolist() == [0.0]
    assert attacks.search_balls(smoothed, [DIVIDED], [expected], [radius], steps=5).violations == []
    (broken,) = attacks.search_balls(smoothed, [DIVIDED], [other], [0.01], steps=5).violations
    assert broken.found == expected


@pytest.mark.parametrize(("votes", "expected"), KINDS)
def test_a_run_is_audited_by_its_own_votes(model, data, tmp_path, votes, expected):
    run = smoothed_by(model, votes).certify_dataset(data, n=2_000, out=tmp_path / "run.smoothcert")
    assert [c.prediction for c in run.certificates()] == [expected, 1, 0]
    search = attacks.search_run(model, data, run, steps=5)
    assert (search.searched, search.violations) == (3, [])


@pytest.mark.parametrize(
    ("votes", "expected"), [("duels", LABELS), ("labels", LABELS), ("margins", SHARES), ("softmax", SHARES)]
)
def test_commands_deploy_what_they_certified(data, tmp_path, monkeypatch, votes, expected):
    (tmp_path / "divided_model.py").write_text("import torch\n\n" + inspect.getsource(Divided))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    what = ["divided_model:Divided", data.name]
    width = ["--width", "1"] if votes == "margins" else []
    how = ["--sigma", "0.5", "--votes", votes, *width, "--noise", "gaussian", "--seed", "0"]

    def command(*arguments):
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0
        return " ".join(result.output.split())

    command("certify", *what, *how, "--n", "2000", "--out", "run.smoothcert")
    certified = [c.prediction for c in sc.open_run("run.smoothcert").certificates()]
    assert certified == [expected, 1, 0]
    command("predict", *what, *how, "--out", "predicted.tsv")
    with open("predicted.tsv", newline="") as file:
        assert [int(row["predict"]) for row in csv.DictReader(file, delimiter="\t")] == certified
    assert "None was broken. 3 certified" in command("attack", *what, "--against", "run.smoothcert", "--steps", "5")
    attacked = command("attack", *what, *how, "--eps", "0.001", "--steps", "2", "--out", "attack.csv")
    assert ("softmax votes" in attacked) == (votes == "softmax")
    with open("attack.csv", newline="") as file:
        lost = [float(row["norm"] or "inf") == 0 for row in csv.DictReader(file)]
    assert lost == [expected != LABELS, False, False]
