"""Duels from a model to a certificate: the default, what is kept, what is proved, what else the votes may say."""

import numpy as np
import pytest
import torch
from scipy import special, stats

import interruptible
from interruptible import certify, classify, interrupted_after
from smoothcert import ABSTAIN, Duels, InputError, Labels, SmoothedClassifier, certify_duels, open_run
from smoothcert.bounds import METHODS
from smoothcert.sampling.blocks import Phase
from smoothcert.sampling.duels import Lost
from smoothcert.store.file import RunFile

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(6, 10)).astype(np.float32)
X = RNG.normal(size=(8, 6)).astype(np.float32)


def scores(batch):
    return batch @ WEIGHTS


def distances(x):
    """The class of a linear model, and how far its nearest boundary is."""
    z = x @ WEIGHTS
    k = int(z.argmax())
    return k, min((z[k] - z[j]) / np.linalg.norm(WEIGHTS[:, k] - WEIGHTS[:, j]) for j in range(10) if j != k)


def smoothed_by(model=scores, **options):
    return SmoothedClassifier(model, **{"sigma": 0.5, "num_classes": 10, "seed": 0, **options})


class TestTheDefault:
    def test_scores_duel(self):
        smoothed = smoothed_by()
        certificate = smoothed.certify(X[0], n=200)
        assert smoothed.classifier.votes == certificate.classifier.votes == Duels()
        assert certificate.method == "duels"

    def test_labels_vote(self):
        smoothed = smoothed_by(lambda batch: scores(batch).argmax(axis=1))
        certificate = smoothed.certify(X[0], n=200)
        assert smoothed.classifier.votes == certificate.classifier.votes == Labels()
        assert certificate.method == "pairwise"

    @pytest.mark.parametrize("ask", ["predict", "count", "certify"])
    def test_whatever_is_asked_first_settles_it(self, ask):
        smoothed = smoothed_by(lambda batch: scores(batch).argmax(axis=1))
        getattr(smoothed, ask)(X[0], *([100] if ask == "count" else []))
        assert smoothed.classifier.votes == Labels()

    def test_labels_do_not_duel(self):
        smoothed = smoothed_by(lambda batch: scores(batch).argmax(axis=1), votes=Duels())
        with pytest.raises(InputError, match="returns labels, and duels votes are made of scores: use labels"):
            smoothed.certify(X[0], n=200)

    def test_a_run_keeps_what_it_was(self, tmp_path):
        assert certify(tmp_path / "scores", n=200, limit=2).plan.classifier.votes == Duels()

        def labels(batch):
            return classify(batch).argmax(axis=1)

        assert certify(tmp_path / "labels", labels, n=200, limit=2, num_classes=3).plan.classifier.votes == Labels()

    def test_a_run_of_labels_goes_on_with_labels(self, tmp_path):
        """What was started by labels on request is gone on with where no votes are named."""
        started = certify(tmp_path / "run", n=200, limit=2, votes="labels")
        assert certify(tmp_path / "run", n=200, limit=2).plan == started.plan

    def test_other_votes_are_another_run(self, tmp_path):
        certify(tmp_path / "run", n=200, limit=2)
        with pytest.raises(InputError, match="votes = duels, not labels"):
            certify(tmp_path / "run", n=200, limit=2, votes="labels")


def test_the_radius_is_near_the_distance_and_not_above():
    for x in X:
        k, true = distances(x)
        certificate = smoothed_by().certify(x, n=20_000)
        if true > 0.1:
            assert certificate.prediction == k
            assert true - 0.06 - 0.1 * true < certificate.radius <= true
        assert certificate.radius <= true


def test_duels_beat_mono_on_the_very_same_draws(tmp_path):
    run = certify(tmp_path / "run", n=1_000)
    mono = run.certificates("mono")
    agree = [(d, m) for d, m in zip(run.certificates(), mono, strict=True) if d.prediction == m.prediction]
    assert len(agree) >= 8
    assert all(d.radius >= m.radius for d, m in agree)
    assert any(d.radius > m.radius for d, m in agree)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return certify(tmp_path_factory.mktemp("duels") / "run", n=830, n0=250)


class TestWhatIsKept:
    def test_the_certificate_is_that_of_its_lost_duels(self, run):
        fought = run.tally.duels
        for i, certificate in enumerate(run.certificates()):
            again = certify_duels(fought.lost[i], 830, candidate=fought.candidates[i], sigma=0.3)
            assert (certificate.prediction, certificate.radius) == (again.prediction, again.radius)

    def test_estimation_rows_are_of_one_class_and_selection_rows_of_those_that_won(self, run):
        with RunFile.open_to_read(run.path) as file:
            for votes in file.votes():
                lost = votes.beside
                assert isinstance(lost, Lost)
                if votes.phase is Phase.ESTIMATION:
                    assert set(lost.classes) == {run.tally.duels.candidates[votes.position]}
                else:
                    assert set(lost.classes) == set(votes.classes)

    def test_labels_beside_are_those_of_a_run_of_labels(self, run, tmp_path):
        """Each method for labels says of a run of duels what it says of the same draws, about the other classifier."""
        labels = certify(tmp_path / "labels", n=830, n0=250, votes="labels")
        assert interruptible.votes(labels) == interruptible.votes(run)
        for method in METHODS:
            ours, theirs = run.certificates(method), labels.certificates(method)
            assert [(c.prediction, c.radius) for c in ours] == [(c.prediction, c.radius) for c in theirs]
            assert {c.classifier.votes for c in ours} == {Labels()}
        assert {c.classifier.votes for c in run.certificates()} == {Duels()}

    def test_another_level_is_another_statement_about_the_same_duels(self, run):
        bold, usual = run.certificates(alpha=0.05), run.certificates()
        assert all(b.radius >= u.radius for b, u in zip(bold, usual, strict=True))

    def test_methods_for_labels_are_marked(self, run):
        assert run.methods == ("duels",)
        assert run.compared == ("duels", *METHODS)
        assert [run.called(m) for m in ("duels", "mono")] == ["duels", "mono (labels)"]


def test_labels_of_an_adaptive_run_are_refused(tmp_path):
    run = certify(tmp_path / "run", radii=[0.1, 0.2], max_n=1_000)
    assert {c.votes for c in run.certificates()} == {"duels"}
    for change in ({"method": "mono"}, {"method": "duels"}, {"alpha": 0.01}):
        with pytest.raises(InputError, match="stopped drawing when its votes said so"):
            open_run(run.path).certificates(**change)


@pytest.mark.parametrize("calls", [3, 9, 25, 40])
@pytest.mark.parametrize(
    "ask", [{"n": 530, "n0": 250}, {"radii": [0.1, 0.2, 0.3], "max_n": 2_000}], ids=["fixed", "adaptive"]
)
def test_a_run_stopped_anywhere_ends_with_the_same_duels(tmp_path, ask, calls):
    with interrupted_after(calls):
        certify(tmp_path / "run", **ask)
    again, whole = certify(tmp_path / "run", **ask), certify(tmp_path / "whole", **ask)
    assert interruptible.others(again) == interruptible.others(whole)
    assert again.certificates() == whole.certificates()


def test_grid_noise():
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3, bias=False))
    smoothed = SmoothedClassifier(module, sigma=0.25, num_classes=3, noise="grid", levels=10, seed=0)
    certificate = smoothed.certify(np.full((1, 2, 2), 0.3, dtype=np.float32), n=500)
    assert certificate.votes == "duels"
    assert certificate.noise_error > 0


def beaten(p):
    """Class 0 wins its duel with class 1 with chance p, and always that with class 2."""
    z = special.ndtri(p)

    def model(batch):
        zeros = np.zeros(len(batch))
        return np.stack([zeros, batch[:, 0] - z, zeros - 10], axis=1)

    return model


class TestPredicting:
    @pytest.mark.parametrize("seeds", [100, pytest.param(500, marks=pytest.mark.slow)])
    @pytest.mark.parametrize("p", [0.5, 0.45])
    def test_a_class_that_does_not_win_is_returned_with_probability_at_most_alpha(self, p, seeds):
        """At α = 0.05; class 1 is right where class 0 wins less than half."""
        wrong = 0
        for seed in range(seeds):
            smoothed = SmoothedClassifier(beaten(p), sigma=1.0, num_classes=3, votes=Duels(), batch=100, seed=seed)
            wrong += smoothed.predict(np.zeros(1), alpha=0.05, max_n=100) in ((0, 1) if p == 0.5 else (0,))
        assert stats.binomtest(wrong, seeds, 0.05, alternative="greater").pvalue > 1e-4

    def test_what_is_clear_takes_few_draws(self):
        smoothed = smoothed_by(beaten(0.999), sigma=1.0, num_classes=3)
        assert smoothed.predict(np.zeros(1)) == 0
        assert smoothed.drawn == 10 + 20

    def test_what_is_not_is_given_up(self):
        smoothed = smoothed_by(beaten(0.5), sigma=1.0, num_classes=3)
        assert smoothed.predict(np.zeros(1)) == ABSTAIN
        assert smoothed.drawn <= 1_100

    @pytest.mark.parametrize("max_n", [1, 7, 20, 33, 150, 1_000])
    def test_no_more_draws_than_allowed(self, max_n):
        smoothed = smoothed_by(beaten(0.55), sigma=1.0, num_classes=3)
        smoothed.predict(np.zeros(1), max_n=max_n)
        assert smoothed.drawn <= max_n + max(10, max_n // 10)

    def test_many_inputs_are_predicted_as_each_alone(self):
        together = smoothed_by().predict_batch(list(X))
        assert together == [smoothed_by().predict(x) for x in X]
        assert together.count(ABSTAIN) <= 2

    def test_a_class_without_a_majority_of_labels(self):
        """Class 0 is second in every draw that it does not win, and wins a tenth of them: no label leads it."""

        def model(batch):
            z = np.tile(np.arange(10, 0, -1.0), (len(batch), 1))
            winner = np.floor(10 * special.ndtr(batch[:, 0])).astype(int).clip(0, 9)
            z[np.arange(len(batch)), winner] = 20
            return z

        x = np.zeros(1)
        by_duels, by_labels = (
            SmoothedClassifier(model, sigma=1.0, num_classes=10, votes=v, seed=0) for v in (Duels(), Labels())
        )
        assert (by_duels.predict(x), by_labels.predict(x)) == (0, ABSTAIN)
        assert by_duels.certify(x, n=5_000).radius > 1.1 > by_labels.certify(x, n=5_000).radius == 0
