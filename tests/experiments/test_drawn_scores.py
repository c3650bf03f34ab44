"""Scores that are drawn once say of every kind of votes what draws of its own would have said."""

import dataclasses

import pytest
import torch

from smoothcert import Duels, Labels, Margins, SmoothedClassifier, Softmax
from smoothcert.data import digits
from smoothcert.experiments.drawn_scores import DrawnScores, draw_scores
from smoothcert.models import load_model
from smoothcert.plan import Question
from smoothcert.sampling.blocks import Input

torch.set_num_threads(1)
N0, N = 130, 350


def smoothed(votes):
    network = load_model("digits_cnn", device="cpu")
    return SmoothedClassifier(network, sigma=0.5, num_classes=10, votes=votes, engine="torch", batch=60, seed=3)


@pytest.fixture(scope="module")
def drawn():
    """Three inputs and their scores."""
    inputs = [Input(e.id, e.array) for e in (digits(train=False)[row] for row in (0, 5, 8))]
    scores = draw_scores(smoothed(Duels()), inputs, N0, N)
    assert scores.shape == (3, N0 + N, 10)
    return inputs, DrawnScores(scores[:, :N0], scores[:, N0:])


@pytest.mark.parametrize("votes", [Duels(), Labels(), Softmax(0.5), Margins(2.0)])
def test_certificates_are_those_of_the_votes_themselves(drawn, votes):
    inputs, scores = drawn
    question = Question.of(n0=N0, n=N)
    own = smoothed(votes).certify_batch(inputs, question)
    found = scores.certify(smoothed(votes).classifier, question)
    assert [dataclasses.replace(c, engine=None) for c in own] == found
    assert max(c.radius for c in found) > 0.3
