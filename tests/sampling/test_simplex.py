"""Shares of a vote: points of the simplex, with the Lipschitz constants that are claimed for them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert import InputError
from smoothcert.bounds.soft import MOST_DRAWS, UNIT
from smoothcert.sampling.blocks import Phase, Soft, Votes, join
from smoothcert.sampling.simplex import MAPS, check_votes, component_constant, shares, sparsemax

scores = st.lists(st.floats(-20, 20), min_size=2, max_size=8).map(lambda z: torch.tensor([z], dtype=torch.float64))


@settings(deadline=None)
@given(scores, st.sampled_from(sorted(MAPS)))
def test_shares_lie_in_the_simplex_and_the_largest_belongs_to_the_largest_score(z, name):
    (p,) = MAPS[name](z)
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1)
    assert p[z[0].argmax()] == p.max()


@settings(deadline=None)
@given(scores)
def test_sparsemax_is_the_nearest_point_of_the_simplex(z):
    """What is left has no larger inner product with any corner than with the projection."""
    p = sparsemax(z)[0]
    rest = z[0] - p
    assert (rest <= rest @ p + 1e-9).all()


@pytest.mark.parametrize("name", ["softmax", "sparsemax"])
@pytest.mark.parametrize("classes", [2, 5])
def test_the_constant_of_a_component_is_not_passed_and_nearly_reached(name, classes):
    generator = torch.Generator().manual_seed(0)
    temperature = 0.7
    z = temperature * torch.randn(3000, classes, generator=generator, dtype=torch.float64).requires_grad_()
    if name == "sparsemax":
        z = z / 10  # near the centre all classes are in the support
    (gradient,) = torch.autograd.grad(MAPS[name](z / temperature)[:, 0].sum(), z)
    steepest, bound = float(gradient.norm(dim=1).max()), component_constant(name, temperature, classes)
    assert steepest <= bound * (1 + 1e-12)
    if classes == 2 or name == "sparsemax":
        assert steepest > 0.99 * bound


def test_hard_votes_have_no_constant():
    assert component_constant("hard", 1.0, 10) == component_constant("hardmax", 1.0, 10) == math.inf


def test_blocks_add_up_to_the_whole_in_any_cut():
    generator = torch.Generator().manual_seed(1)
    k = shares("softmax", 0.5, torch.randn(1000, 7, generator=generator)).numpy()
    assert k.max() <= UNIT

    def votes(first, last):
        part = k[100 * first : 100 * last]
        classes, counts = np.unique(part.argmax(axis=1), return_counts=True)
        return Votes(0, Phase.ESTIMATION, first, last, len(part), classes, counts, 0.0, Soft.of(part, 2))

    whole = votes(0, 10)
    assert join([votes(0, 3), votes(3, 4), votes(4, 10)]).says_the_same_as(whole)
    assert not join([votes(0, 3), votes(3, 9)]).says_the_same_as(whole)
    assert whole.soft.sums == pytest.approx(k.sum(axis=0))
    assert whole.soft.products == pytest.approx((k[:, [2]] * k).sum(axis=0))


def test_the_largest_number_of_draws_does_not_overflow():
    assert MOST_DRAWS * UNIT**2 < 2**63 <= (MOST_DRAWS + 1) * UNIT**2


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"votes": "fuzzy"}, "unknown votes 'fuzzy': choose one of hard, softmax"),
        ({"temperature": 0.0}, "temperature must be a positive number, got 0.0"),
        ({"temperature": -1}, "temperature must be a positive number"),
        ({"temperature": math.nan}, "temperature must be a positive number"),
        ({"adaptive": True}, "soft votes need a fixed number of draws"),
        ({"n": 1}, "soft votes need from 2 to"),
        ({"n": 10**8}, "soft votes need from 2 to"),
    ],
)
def test_what_cannot_be_voted_is_refused(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        check_votes(**{"votes": "softmax", "temperature": 1.0, "n0": 100, "n": 1000, "adaptive": False, **changes})
