"""Margin votes from a model to a certificate: exact where margins are affine, between duels and no noise."""

import json
import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import interruptible
from interruptible import Items, certify, classify, interrupted_after
from smoothcert import ABSTAIN, Duels, InputError, Labels, Margins, SmoothedClassifier, open_run
from smoothcert.bounds import METHODS
from smoothcert.store.export import export_run
from smoothcert.store.schema import VERSION, plan_from_json, to_json

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(6, 10)).astype(np.float32)
X = RNG.normal(size=(8, 6)).astype(np.float32)
WIDTHS = [1e-6, 0.3, 2.0, 10.0]


class Linear(torch.nn.Module):
    """Every margin is affine, and the constants of the last layer's rows are tight."""

    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(6, 10, bias=False)
        self.last.weight.data = torch.from_numpy(WEIGHTS.T.copy())

    def forward(self, x):
        return self.last(x)


def distances(x):
    """The class of the linear model, and how far its nearest boundary is."""
    z = x @ WEIGHTS
    k = int(z.argmax())
    return k, min((z[k] - z[j]) / np.linalg.norm(WEIGHTS[:, k] - WEIGHTS[:, j]) for j in range(10) if j != k)


def smoothed_by(votes, model=None, **options):
    known = {"sigma": 0.5, "num_classes": 10, "seed": 0, "engine": "torch", "batch": 1000, **options}
    return SmoothedClassifier(Linear() if model is None else model, votes=votes, **known)


@pytest.mark.parametrize("width", WIDTHS)
def test_affine_margins_are_exact_at_every_width(width):
    """The radius is not above the distance to the boundary, and comes near to it."""
    for x, certificate in zip(
        X, smoothed_by(Margins(width)).certify_batch(X, n=20_000, lipschitz="product"), strict=True
    ):
        k, true = distances(x)
        assert certificate.radius <= true
        if true > 0.1:
            assert certificate.prediction == k
            assert certificate.radius > true - 0.06 - 0.1 * true


def test_hardly_any_width_is_duels():
    """On the very same draws, up to what the bound on a mean is wider than that on a count: 2 % and a little."""
    ours, theirs = (smoothed_by(votes).certify_batch(X, n=10_000) for votes in (Margins(1e-9), Duels()))
    for margins, duels in zip(ours, theirs, strict=True):
        assert 0.98 * duels.radius - 0.003 < margins.radius <= duels.radius + 1e-9


def test_a_wide_vote_is_the_mean_margin():
    """Of scores that bend: (mean margin − what the bound takes off) / K, and never above the mean margin / K."""
    k = 2.0

    def bent(batch):
        z = np.minimum(batch[:, :1], 0.3)
        return np.concatenate([z, -z], axis=1)

    x = np.float32([0.2])
    mean = np.minimum(stats.norm.ppf(np.linspace(5e-6, 1 - 5e-6, 100_000), 0.2, 0.1), 0.3).mean() * 2
    smoothed = SmoothedClassifier(bent, sigma=0.1, num_classes=2, votes=Margins(4.0), seed=0, batch=1000)
    radius = smoothed.certify(x, n=100_000, lipschitz=k / np.sqrt(2)).radius
    assert 0.97 * mean / k < radius < mean / k


def test_without_a_constant_the_radius_is_that_of_plain_smoothing():
    smoothed = smoothed_by(Margins(2.0))
    plain, steep = smoothed.certify(X[1], n=2_000), smoothed.certify(X[1], n=2_000, lipschitz="product")
    assert plain.lipschitz is None
    assert 0 < plain.radius < steep.radius
    steepest = max(np.linalg.norm(WEIGHTS[:, plain.prediction] - column) for column in WEIGHTS.T)
    assert steep.lipschitz == pytest.approx(steepest / 4, rel=1e-4)
    assert (plain.votes, plain.method, plain.basis) == ("margins", "ramps", "proved")


def test_a_flat_margin_never_ends():
    """Two classes whose scores differ by a constant: nothing changes between them, whatever the perturbation."""
    module = torch.nn.Linear(3, 2)
    module.weight.data[:] = torch.tensor([1.0, 2.0, 3.0])
    module.bias.data[:] = torch.tensor([1.0, 0.0])
    smoothed = SmoothedClassifier(module, sigma=0.5, num_classes=2, votes=Margins(1.0), engine="torch", batch=100)
    assert smoothed.certify(np.zeros(3), n=1_000, lipschitz="product").radius > 1e6


def test_a_search_is_an_estimate():
    certificate = smoothed_by(Margins(0.5)).certify(X[1], n=500, lipschitz="local")
    assert certificate.basis == "estimated"


@pytest.mark.parametrize("seeds", [100, pytest.param(500, marks=pytest.mark.slow)])
def test_a_class_that_does_not_lead_is_certified_with_probability_at_most_alpha(seeds):
    """The whole chain, selection and choice included: margins of mean 0, at α = 0.05."""

    def even(batch):
        """At half the width each vote is ½ ± ¼ or less, ½ on average: the normal coordinates are symmetric."""
        z = 0.4 * np.sign(batch[:, :1]) + 0.1 * np.tanh(batch[:, 1:])
        return np.concatenate([z, np.zeros_like(z)], axis=1)

    lost = 0
    for seed in range(seeds):
        smoothed = SmoothedClassifier(even, sigma=1.0, num_classes=2, votes=Margins(1.0), seed=seed, batch=100)
        lost += smoothed.certify(np.zeros(2), n0=20, n=80, alpha=0.05).prediction == 0
    assert lost <= stats.binom.isf(1e-4, seeds, 0.05)


PLAN = {"votes": Margins(0.5), "n": 830, "n0": 250, "lipschitz": 3.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return certify(tmp_path_factory.mktemp("margins") / "run.smoothcert", **PLAN)


class TestARun:
    def test_it_says_what_memory_says(self, run):
        smoothed = SmoothedClassifier(classify, sigma=0.3, num_classes=3, votes=Margins(0.5), seed=0, batch=64)
        certificates = smoothed.certify_batch([Items()[i][0] for i in range(12)], n=830, n0=250, lipschitz=3.0)
        ours = sum(c.radius for c in run.certificates())
        assert ours == pytest.approx(sum(c.radius for c in certificates), rel=0.1)
        assert run.plan.classifier.votes == Margins(0.5)

    @pytest.mark.parametrize("calls", [3, 25, 60])
    def test_stopped_anywhere_it_ends_with_the_same_votes(self, run, tmp_path, calls):
        with interrupted_after(calls):
            certify(tmp_path / "run", **PLAN)
        again = certify(tmp_path / "run", **PLAN)
        assert interruptible.others(again) == interruptible.others(run)
        assert again.certificates() == run.certificates()

    def test_labels_beside_are_those_of_a_run_of_labels(self, run, tmp_path):
        labels = certify(tmp_path / "labels", n=830, n0=250, votes="labels")
        for method in METHODS:
            ours, theirs = run.certificates(method), labels.certificates(method)
            assert [(c.prediction, c.radius) for c in ours] == [(c.prediction, c.radius) for c in theirs]
            assert {c.classifier.votes for c in ours} == {Labels()}

    def test_another_level_is_another_statement_about_the_same_votes(self, run):
        bold, usual = open_run(run.path).certificates(alpha=0.05), run.certificates()
        assert all(b.radius >= u.radius for b, u in zip(bold, usual, strict=True))
        plain = run.certificates(plain=True)
        assert all(p.radius <= u.radius for p, u in zip(plain, usual, strict=True))

    def test_it_is_exported(self, run, tmp_path):
        export_run(run, tmp_path / "run.json", "json")
        found = json.loads((tmp_path / "run.json").read_text())
        assert found["plan"]["classifier"]["votes"] == {"kind": "margins", "width": 0.5}
        assert [row["radius"] for row in found["certificates"]] == [c.radius for c in run.certificates()]

    def test_another_width_is_another_run(self, run):
        with pytest.raises(InputError, match=r"width = 0.5, not 0.6"):
            certify(run.path, **{**PLAN, "votes": Margins(0.6)})


class TestTheWidth:
    def test_it_is_chosen_kept_and_deployed(self, tmp_path, caplog):
        caplog.set_level(logging.INFO)
        smoothed = SmoothedClassifier(classify, sigma=0.3, num_classes=3, votes=Margins(), seed=0, batch=64)
        ask = {"n": 430, "n0": 50, "lipschitz": 3.0}
        with pytest.raises(InputError, match="give it as a number"):
            smoothed.predict(Items()[0][0])
        run = smoothed.certify_dataset(Items(), out=tmp_path / "run", **ask)
        (told,) = [record.getMessage() for record in caplog.records if "width" in record.getMessage()]
        width = run.plan.classifier.votes.width
        assert f"width of the margin votes: {width:g}, at which 12 inputs promise" in told
        assert smoothed.classifier.votes == Margins(width)
        clear = {i: c.prediction for i, c in enumerate(run.certificates()) if c.radius > 0.2}
        assert {i: smoothed.predict(Items()[i][0]) for i in clear} == clear != {}
        declared = certify(tmp_path / "declared", votes=Margins(width), **ask)
        assert interruptible.others(declared) == interruptible.others(open_run(tmp_path / "run"))

    def test_a_resumed_run_takes_that_of_its_plan(self, tmp_path):
        ask = {"votes": Margins(), "n": 430, "lipschitz": 3.0}
        with interrupted_after(40):
            certify(tmp_path / "run", **ask)
        again, whole = certify(tmp_path / "run", **ask), certify(tmp_path / "whole", **ask)
        assert again.plan == whole.plan
        assert interruptible.others(again) == interruptible.others(whole)

    def test_a_smaller_constant_wants_a_wider_vote(self, tmp_path):
        flat, steep = (certify(tmp_path / str(k), votes=Margins(), n=430, lipschitz=k) for k in (1.0, 1000.0))
        assert flat.plan.classifier.votes.width > 4 * steep.plan.classifier.votes.width

    def test_shards_need_a_number(self, tmp_path):
        with pytest.raises(InputError, match="shards are parts of one run, which has one width"):
            certify(tmp_path / "run", votes=Margins(), n=430, shard=(1, 2))
        assert not any(tmp_path.iterdir())

    def test_no_plan_is_written_without_it(self, run):
        open_votes = replace(run.plan, classifier=replace(run.plan.classifier, votes=Margins()))
        assert plan_from_json(to_json(run.plan), VERSION) == run.plan
        with pytest.raises(ValueError, match="without their width"):
            plan_from_json(to_json(open_votes), VERSION)

    @pytest.mark.parametrize("width", [0, -1.0, np.nan, np.inf, 1e-40, "wide", True])
    def test_widths_that_are_none(self, width):
        with pytest.raises(InputError, match="width"):
            Margins(width)


class TestRefused:
    def test_grid_noise_with_a_constant(self):
        smoothed = smoothed_by(Margins(0.5), noise="grid", levels=10)
        with pytest.raises(InputError, match="rounds its input, which is not Lipschitz"):
            smoothed.certify(np.full(6, 0.3, dtype=np.float32), lipschitz=1.0)

    @pytest.mark.parametrize("ask", [{"radii": [0.1]}, {"width": 0.1}])
    def test_adaptive_draws(self, ask):
        with pytest.raises(InputError, match="soft votes need a fixed number of draws"):
            smoothed_by(Margins(0.5)).certify(X[0], **ask)

    def test_labels(self):
        smoothed = smoothed_by(Margins(0.5), lambda batch: (batch @ WEIGHTS).argmax(axis=1), engine="auto")
        with pytest.raises(InputError, match="returns labels, and margins votes are made of scores"):
            smoothed.certify(X[0], n=200)


def test_grid_noise_without_a_constant():
    smoothed = smoothed_by(Margins(0.5), noise="grid", levels=10)
    certificate = smoothed.certify(np.full(6, 0.3, dtype=np.float32), n=500)
    assert certificate.noise_error > 0
    assert certificate.prediction != ABSTAIN or certificate.radius == 0
