"""Kinds of votes: the Lipschitz constants that are claimed for them, what they count, and what they cannot be."""

import math

import numpy as np
import pytest
import torch

from smoothcert import ABSTAIN, Duels, InputError, Labels, Margins, SmoothedClassifier, Softmax, Sparsemax
from smoothcert.bounds import METHODS
from smoothcert.plan import KINDS, Classifier, Hardmax
from smoothcert.sampling.blocks import MOST_SOFT_DRAWS, UNIT
from smoothcert.sampling.simplex import MAPS


@pytest.mark.parametrize("kind", [Softmax, Sparsemax])
@pytest.mark.parametrize("classes", [2, 5])
def test_the_constant_of_a_share_is_not_passed_and_nearly_reached(kind, classes):
    generator = torch.Generator().manual_seed(0)
    temperature = 0.7
    z = temperature * torch.randn(3000, classes, generator=generator, dtype=torch.float64).requires_grad_()
    if kind is Sparsemax:
        z = z / 10  # near the centre all classes are in the support
    (gradient,) = torch.autograd.grad(MAPS[kind.name](z / temperature)[:, 0].sum(), z)
    steepest, bound = float(gradient.norm(dim=1).max()), kind(temperature).slope(classes)
    assert steepest <= bound * (1 + 1e-12)
    if classes == 2 or kind is Sparsemax:
        assert steepest > 0.99 * bound


def test_votes_that_jump_have_no_constant():
    assert Labels().slope(10) == Hardmax().slope(10) == math.inf


@pytest.mark.parametrize("kind", [Softmax, Sparsemax, Hardmax])
def test_a_vote_is_divided_into_whole_units(kind):
    scores = torch.randn(500, 6, generator=torch.Generator().manual_seed(1))
    shares = kind(0.3).ballots(scores)
    assert shares.dtype == torch.int64
    assert (shares >= 0).all()
    assert (shares.sum(dim=1) - UNIT).abs().max() <= 3  # each of six is rounded by half a unit at most
    assert (shares.argmax(dim=1) == scores.argmax(dim=1)).all()


def test_labels_take_nothing_of_the_scores():
    assert Labels().ballots(torch.zeros(5, 3)).shape == (5, 0)
    assert Labels().count(np.empty((5, 0)), 1) is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_usual_method_is_one_of_the_kind_s_own(kind):
    assert kind.default_method in kind.methods
    assert set(kind.beside) == (set(METHODS) if kind.of_scores else set())


@pytest.mark.parametrize("temperature", [0.0, -1, math.nan, math.inf, "1", True, None])
@pytest.mark.parametrize("kind", [Softmax, Sparsemax, Hardmax])
def test_scores_are_divided_by_positive_numbers_only(kind, temperature):
    with pytest.raises(InputError, match="temperature must be a positive number, got"):
        kind(temperature)


def test_a_name_that_is_none():
    with pytest.raises(
        InputError, match="unknown votes 'fuzzy': choose one of duels, labels, margins, softmax, sparsemax"
    ):
        SmoothedClassifier(lambda b: b, sigma=0.5, num_classes=2, votes="fuzzy")


@pytest.mark.parametrize(("name", "kind"), [("labels", Labels()), ("auto", Duels()), ("softmax", Softmax())])
def test_a_name_is_the_kind(name, kind):
    assert SmoothedClassifier(lambda b: b, sigma=0.5, num_classes=2, votes=name).classifier.votes == kind


def test_a_temperature_says_nothing_about_votes_that_are_not_divided():
    for votes, name in ((None, "duels"), ("auto", "duels"), ("labels", "labels")):
        with pytest.raises(InputError, match=f"`temperature` says nothing about {name} votes: leave it out"):
            SmoothedClassifier(lambda b: b, sigma=0.5, num_classes=2, votes=votes, temperature=0.5)


def test_a_kind_given_whole_has_its_temperature():
    with pytest.raises(InputError, match="`temperature` is part of `votes`, which is given whole"):
        SmoothedClassifier(lambda b: b, sigma=0.5, num_classes=2, votes=Softmax(0.5), temperature=0.5)


def test_a_classifier_takes_kinds_and_no_names():
    """Names are for keywords and commands."""
    with pytest.raises(InputError, match="votes must be one of Duels"):
        Classifier(sigma=0.5, num_classes=2, votes="softmax")


def line(batch):
    """Scores ±x of one number."""
    return np.stack([batch[:, 0], -batch[:, 0]], axis=1)


VOTES = [Margins(0.3) if kind is Margins else kind() for kind in KINDS]


@pytest.mark.parametrize("votes", VOTES, ids=lambda votes: votes.name)
class TestPredicting:
    """The smoothed classifier returns class 0 right of 0 and class 1 left of it, whatever its votes."""

    def smoothed(self, votes):
        return SmoothedClassifier(line, sigma=0.5, num_classes=2, votes=votes, batch=200)

    def test_the_class_is_that_of_the_side(self, votes):
        smoothed = self.smoothed(votes)
        assert smoothed.predict_batch([np.float32([0.4]), np.float32([-0.4])]) == [0, 1]
        assert smoothed.predict(np.float32([0.0])) == ABSTAIN

    def test_a_class_that_is_predicted_is_certified(self, votes):
        certificate = self.smoothed(votes).certify(np.float32([0.4]), n=5_000)
        assert certificate.prediction == 0
        assert 0 < certificate.radius < 0.4
        assert (certificate.votes, certificate.classifier.votes) == (votes.name, votes)

    def test_every_draw_counts_one_vote(self, votes):
        counts = self.smoothed(votes).count(np.float32([0.4]), 1_000)
        assert counts.sum() == pytest.approx(1_000)
        assert counts[0] > counts[1]


@pytest.mark.parametrize("n", [1, MOST_SOFT_DRAWS + 1])
def test_shares_cannot_be_added_up_over_any_number_of_draws(n):
    def never(batch):
        raise AssertionError

    smoothed = SmoothedClassifier(never, sigma=0.5, num_classes=2, votes=Softmax(), batch=10)
    with pytest.raises(InputError, match="max_n must be"):
        smoothed.predict(np.zeros(1), max_n=n)
    with pytest.raises(InputError, match="soft votes need from 2 to"):
        smoothed.certify(np.zeros(1), n=n)
