"""Soft votes from a model to a certificate: what is kept, what is proved, what is only estimated, what is refused."""

import csv
import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from typer.testing import CliRunner

from interruptible import IMAGES, Items, certify_dataset, classify, interrupted_after
from smoothcert import InputError, RunError, SmoothedClassifier, Softmax, Sparsemax, lipschitz, open_run, radii
from smoothcert.cli import app
from smoothcert.data import digits
from smoothcert.models import load_model
from smoothcert.plan import Labels
from smoothcert.store.export import export_run
from smoothcert.store.file import RunFile
from smoothcert.store.schema import meta_checksum
from smoothcert.store.shards import merge_runs

PLAN = {"sigma": 0.3, "n0": 50, "n": 730, "batch": 64, "votes": "softmax", "temperature": 0.5, "limit": 6, "seed": 0}


def soft_run(out, model=classify, **changes):
    return certify_dataset(model, Items(), out=Path(out), **{**PLAN, **changes})


def kept(run):
    shares = run.tally.shares
    return [a.tolist() for s in (shares.selection, shares.estimation) for a in (s.n, s.sums, s.squares, s.products)]


@pytest.fixture(scope="module")
def uninterrupted_soft(tmp_path_factory):
    return soft_run(tmp_path_factory.mktemp("soft") / "run.smoothcert")


def linear():
    """A linear classifier of the small images as a module, and its true constant."""
    weights = torch.tensor(np.random.default_rng(1).normal(size=(3, 16)), dtype=torch.float32)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3, bias=False))
    module[1].weight.data = weights
    return module, float(torch.linalg.matrix_norm(weights.double(), 2))


@pytest.fixture(scope="module")
def estimated_run(tmp_path_factory):
    return soft_run(tmp_path_factory.mktemp("local") / "run.smoothcert", linear()[0], lipschitz="local", engine="torch")


def two_scores(slope):
    """A network of one number with the scores ±slope · x."""
    module = torch.nn.Linear(1, 2, bias=False)
    module.weight.data = torch.tensor([[slope], [-slope]])
    return module


@pytest.mark.parametrize("votes", [Softmax(0.5), Sparsemax(0.5)])
@pytest.mark.parametrize("x", [0.1, 0.4, 1.0])
def test_a_local_constant_is_that_of_the_share_within_the_ball(votes, x):
    """The share is steepest where the ball comes nearest to 0: there a logistic function has the slope
    s (1 − s) · 2a/T, and a ramp a/T, or 0 where it has ended."""
    slope, nearest = 1.5, max(x - 0.15, 0.0)
    s = special.expit(2 * slope * nearest / votes.temperature)
    ends = votes.temperature / (2 * slope)
    want = s * (1 - s) * 2 * slope if votes.name == "softmax" else slope * (nearest < ends)
    smoothed = SmoothedClassifier(two_scores(slope), sigma=0.3, num_classes=2, votes=votes, engine="torch", seed=0)
    certificate = smoothed.certify(np.float32([x]), n=500, lipschitz="local")
    assert certificate.basis == "estimated"
    assert certificate.lipschitz == pytest.approx(want / votes.temperature, rel=1e-3, abs=1e-8)


def as_before(path):
    """The file as a version left it that knew local constants of scores only, before it searched them."""
    with sqlite3.connect(path) as db:
        meta = dict(db.execute("SELECT key, value FROM meta"))
        plan = json.loads(meta["plan"])
        assert plan.pop("local_of") == "shares"
        meta = {**meta, "plan": json.dumps(plan)}
        del meta["checksum"]
        db.executemany("REPLACE INTO meta VALUES (?, ?)", {**meta, "checksum": meta_checksum(meta)}.items())
        db.execute("DELETE FROM constants")
    db.close()


def test_a_run_that_was_begun_with_constants_of_scores_ends_with_them(estimated_run, tmp_path):
    path = tmp_path / "run.smoothcert"
    shutil.copy(estimated_run.path, path)
    as_before(path)
    module, constant = linear()
    run = soft_run(path, module, lipschitz="local", engine="torch")
    assert run.constants == pytest.approx(np.full(6, constant), rel=1e-3)
    assert run.certificates(estimated=True)[0].lipschitz == pytest.approx(Softmax(0.5).slope(3) * constant, rel=1e-3)
    assert "local constants of the scores are estimated" in run.plan.votes_in_words
    assert "local constants of the shares are estimated" in estimated_run.plan.votes_in_words


def test_shards_with_constants_of_different_things_are_not_merged(tmp_path):
    paths = [tmp_path / f"{i}.smoothcert" for i in (1, 2)]
    for i, path in enumerate(paths):
        soft_run(path, linear()[0], lipschitz="local", engine="torch", shard=(i + 1, 2))
    as_before(paths[1])
    with pytest.raises(InputError, match="local_of = shares and scores"):
        merge_runs(paths, tmp_path / "whole.smoothcert")


@pytest.mark.parametrize("calls", [2, 6, 9, 40])
def test_a_run_stopped_anywhere_ends_with_the_same_sums(tmp_path, uninterrupted_soft, calls):
    path = tmp_path / "run.smoothcert"
    with interrupted_after(calls):
        soft_run(path)
    assert kept(soft_run(path)) == kept(uninterrupted_soft)


def test_hard_votes_are_those_of_a_hard_run(tmp_path, uninterrupted_soft):
    hard = soft_run(tmp_path / "run.smoothcert", votes="labels", temperature=None)
    assert hard.tally.estimations.tolist() == uninterrupted_soft.tally.estimations.tolist()
    assert [c.radius for c in hard.certificates("cpm")] == [c.radius for c in uninterrupted_soft.certificates("cpm")]


def test_the_sums_are_those_of_the_shares(uninterrupted_soft):
    """The mean share of a linear classifier under noise, by drawing noise of our own."""
    rng = np.random.default_rng(0)
    estimation = uninterrupted_soft.tally.shares.estimation
    for i in range(3):
        noisy = IMAGES[i] + 0.3 * rng.normal(size=(100_000, *IMAGES[i].shape))
        p = special.softmax(classify(noisy) / 0.5, axis=1)
        error = 5 * p.std(axis=0) * (730**-0.5 + 100_000**-0.5)
        assert (np.abs(estimation.sums[i] / (730 * 2**20) - p.mean(axis=0)) < error).all()


@pytest.mark.parametrize("votes", [Softmax(), Sparsemax()])
def test_the_radius_is_within_the_true_one(votes):
    """Two scores ±ax of one number: the share is one-dimensional, its smoothing a quadrature, its slope known."""
    sigma, x, slope = 0.5, 0.4, 1.5

    def model(batch):
        return np.stack([slope * batch[:, 0], -slope * batch[:, 0]], axis=1)

    def share(z):
        return special.expit(2 * slope * z) if votes == Softmax() else np.clip(slope * z + 0.5, 0, 1)

    p1 = integrate.quad(lambda z: share(x + sigma * z) * stats.norm.pdf(z), -9, 9, limit=200)[0]
    smoothed = SmoothedClassifier(model, sigma=sigma, num_classes=2, votes=votes, batch=500, seed=0)
    constant = np.sqrt(2) * slope
    plain, exact = (smoothed.certify(np.float32([x]), n=20_000, lipschitz=known) for known in (None, constant))
    L = votes.slope(2) * constant
    assert 0.9 * radii.mult(p1, 1 - p1, sigma) < plain.radius < radii.mult(p1, 1 - p1, sigma)
    assert 0.9 * radii.exact_mult(p1, 1 - p1, sigma, L) < exact.radius < radii.exact_mult(p1, 1 - p1, sigma, L)
    assert plain.radius < exact.radius < x  # the true boundary is at 0
    assert (exact.basis, exact.lipschitz) == ("proved", pytest.approx(L))


def test_the_product_is_proved_and_recorded(tmp_path):
    module, constant = linear()
    run = soft_run(tmp_path / "run.smoothcert", module, lipschitz="product", engine="torch")
    assert constant <= run.plan.constant <= constant * (1 + 1e-6)
    with_constant, plain = run.certificates(), run.certificates(plain=True)
    assert {c.basis for c in with_constant + plain} == {"proved"}
    assert sum(c.radius for c in with_constant) > sum(c.radius for c in plain)
    again = soft_run(tmp_path / "run.smoothcert", module, lipschitz="product", engine="torch")
    assert again.certificates() == with_constant


def test_estimates_are_given_only_where_they_are_asked_for(estimated_run, tmp_path):
    run = estimated_run
    proved, estimated = run.certificates(), run.certificates(estimated=True)
    assert {(c.basis, c.lipschitz) for c in proved} == {("proved", None)}
    assert {c.basis for c in estimated} == {"estimated"}
    assert [c.lipschitz for c in estimated] == run.constants.tolist()
    assert (run.constants <= Softmax(0.5).slope(3) * linear()[1]).all()
    for kind in ("csv", "tsv", "json"):
        for asked, names in ((False, ("radius", "proved")), (True, ("estimated_radius", "estimated"))):
            path = tmp_path / f"{asked}.{kind}"
            export_run(run, path, kind, estimated=asked)
            if kind == "json":
                row = json.loads(path.read_text())["certificates"][0]
            else:
                row = next(csv.DictReader(path.open(), delimiter="," if kind == "csv" else "\t"))
            assert [name for name in row if "radius" in name] == [names[0]]
            if kind != "tsv":
                assert row["basis"] == names[1]


def smoothcert(*arguments):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_commands_show_estimates_only_where_they_are_asked_for(estimated_run, tmp_path):
    shown = smoothcert("show", estimated_run.path)
    assert "betting, estimated" not in shown
    assert "--estimated shows" in " ".join(shown.split())
    asked = smoothcert("recertify", estimated_run.path, "--method", "betting,hoeffding", "--estimated")
    proved, estimated = asked.split("accuracy, estimated")
    assert "estimated" not in proved
    assert "betting, estimated" in estimated
    assert max(map(len, asked.splitlines())) <= 80
    tables = [tmp_path / "proved.md", tmp_path / "estimated.md"]
    smoothcert("report", estimated_run.path, "-o", tables[0])
    smoothcert("report", estimated_run.path, "-o", tables[1], "--estimated")
    assert "estimated" not in tables[0].read_text()
    assert "Certified accuracy, estimated:" in tables[1].read_text()


def test_a_run_without_estimates_says_so(uninterrupted_soft):
    with pytest.raises(InputError, match="has no estimates for betting: certify with `lipschitz` local"):
        uninterrupted_soft.certificates(estimated=True)


def test_the_design_proves_more_than_its_votes_alone(tmp_path):
    run = certify_dataset(
        load_model("digits_lipschitz", device="cpu"),
        digits(train=False),
        out=tmp_path / "run.smoothcert",
        **{**PLAN, "sigma": 0.25, "limit": 20, "batch": 400, "temperature": 0.2},
        lipschitz="product",
        engine="torch",
    )
    assert 0.9 < run.plan.constant <= 1 + 1e-5
    exact, plain = ([c.radius for c in run.certificates(plain=p)] for p in (False, True))
    assert all(e > p for e, p in zip(exact, plain, strict=True) if p > 0)
    assert np.mean(exact) > 1.1 * np.mean(plain) > 0.1


def test_damaged_sums_are_noticed(uninterrupted_soft, tmp_path):
    path = tmp_path / "run.smoothcert"
    shutil.copy(uninterrupted_soft.path, path)
    with sqlite3.connect(path) as db:
        (soft,) = db.execute("SELECT soft FROM votes WHERE position = 2").fetchone()
        db.execute("UPDATE votes SET soft = ? WHERE position = 2", (soft[:-1] + bytes([soft[-1] ^ 1]),))
    db.close()
    with pytest.raises(RunError, match="damaged votes for input number 2"):
        open_run(path).certificates()


def test_a_file_of_format_1_opens_and_is_brought_up_to_date(tmp_path):
    path = tmp_path / "run.smoothcert"
    shutil.copy(Path(__file__).parent / "data" / "format-1.smoothcert", path)
    before = open_run(path)
    assert (before.plan.classifier.votes, before.plan.question.lipschitz) == (Labels(), None)
    certificates = before.certificates()
    with RunFile.open_to_write(path) as file:
        assert file.constants() == {}
    assert open_run(path).certificates() == certificates


def test_a_bound_brings_its_basis_along():
    module = linear()[0]
    proved, estimated = (lipschitz.product(module, IMAGES[0].shape, method) for method in ("fourier", "power"))
    smoothed = SmoothedClassifier(module, sigma=0.3, num_classes=3, votes=Softmax(0.5), engine="torch", batch=64)
    certificate = smoothed.certify(IMAGES[0], n=730, lipschitz=proved)
    assert certificate == smoothed.certify(IMAGES[0], n=730, lipschitz=proved.value)
    assert (certificate.basis, certificate.question.source) == ("proved", "given")
    with pytest.raises(InputError, match="this Lipschitz bound is estimated, not proved"):
        smoothed.certify(IMAGES[0], n=730, lipschitz=estimated)


@pytest.mark.parametrize("lipschitz", ["product", 10.0])
def test_no_constant_is_used_where_the_network_is_computed_coarsely(tmp_path, lipschitz):
    """In bfloat16 a network is a staircase, and a radius of its constant was false."""
    module, question = linear()[0], {"n0": 50, "n": 730, "lipschitz": lipschitz}
    says = "computes in bf16, whose steps no Lipschitz constant bounds"
    smoothed = SmoothedClassifier(module, sigma=0.3, num_classes=3, votes=Softmax(0.5), engine="torch+bf16", batch=64)
    with pytest.raises(InputError, match=says):
        smoothed.certify(IMAGES[0], **question)
    with pytest.raises(InputError, match=says):
        smoothed.certify_dataset(Items(), out=tmp_path / "run.smoothcert", **question)
    assert not (tmp_path / "run.smoothcert").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"votes": "labels", "temperature": None, "lipschitz": 1.0},
            "labels votes jump, so no Lipschitz constant says anything about them",
        ),
        ({"votes": "hardmax", "lipschitz": 1.0}, "hardmax votes jump"),
        ({"noise": "grid", "lipschitz": 1.0}, "with grid noise the classifier rounds its input"),
        ({"lipschitz": "product"}, "found from the layers of a torch module"),
        ({"lipschitz": "local"}, "found from the layers of a torch module"),
        ({"lipschitz": 0.0}, "lipschitz must be a positive number, product or local, got 0.0"),
        ({"lipschitz": float("nan")}, "lipschitz must be a positive number, product or local, got nan"),
        ({"lipschitz": "steep"}, "lipschitz must be a positive number, product or local, got 'steep'"),
        ({"method": "wide"}, "unknown method 'wide'"),
        ({"radii": [0.1], "n": None}, "soft votes need a fixed number of draws"),
        ({"temperature": -2.0}, "temperature must be a positive number, got -2.0"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path, changes, sentence):
    with pytest.raises(InputError, match=sentence):
        soft_run(tmp_path / "run.smoothcert", **changes)


def test_labels_are_no_scores(tmp_path):
    def labels(batch):
        return classify(batch).argmax(axis=1)

    with pytest.raises(InputError, match="softmax votes are made of scores: use labels"):
        soft_run(tmp_path / "run.smoothcert", labels, num_classes=3)


def test_another_temperature_is_another_run(tmp_path):
    soft_run(tmp_path / "run.smoothcert", n=100)
    with pytest.raises(InputError, match=r"was started with temperature = 0.5, not 0.7"):
        soft_run(tmp_path / "run.smoothcert", n=100, temperature=0.7)


class Staircase(torch.nn.Module):
    """Whole steps, by a type that holds no others there."""

    def forward(self, x):
        y = (x[:, :1] + 1024).half().float() - 1024
        return torch.cat([y, 1 - y], 1)


def test_no_constant_is_used_where_a_module_rounds_coarsely_on_the_way():
    smoothed = SmoothedClassifier(Staircase(), sigma=0.05, num_classes=2, votes=Softmax(0.3), seed=0)
    x = np.array([0.6], dtype=np.float32)
    with pytest.raises(InputError, match="coarser than float32 on the way"):
        smoothed.certify(x, n=500, lipschitz="product")
    with pytest.raises(InputError, match="rounds more coarsely than float32"):
        smoothed.certify(x, n=500, lipschitz=lipschitz.product(Staircase(), (1,)))
