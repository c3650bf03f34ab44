"""Shares of a vote: points of the simplex, kept as whole numbers that add up to the same in any order."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.sampling.blocks import MOST_SOFT_DRAWS, UNIT, Phase, Soft, Votes, join
from smoothcert.sampling.simplex import MAPS, shares, sparsemax

scores = st.lists(st.floats(-20, 20), min_size=2, max_size=8).map(lambda z: torch.tensor([z], dtype=torch.float64))


@given(scores, st.sampled_from(sorted(MAPS)))
def test_shares_lie_in_the_simplex_and_the_largest_belongs_to_the_largest_score(z, name):
    (p,) = MAPS[name](z)
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1)
    assert p[z[0].argmax()] == p.max()


@given(scores)
def test_sparsemax_is_the_nearest_point_of_the_simplex(z):
    """What is left has no larger inner product with any corner than with the projection."""
    p = sparsemax(z)[0]
    rest = z[0] - p
    assert (rest <= rest @ p + 1e-9).all()


@pytest.mark.parametrize("scale", [1e3, 1e9, 1e17, 1e38])
def test_sparsemax_of_large_scores(scale):
    """Shares depend on differences alone."""
    z = torch.tensor([[0.0, 0.25, -0.5, -3.0], [1.0, 1.0, 0.0, -1.0]], dtype=torch.float64)
    np.testing.assert_array_equal(sparsemax(torch.round(1024 * z) / 1024 + 1024.0), sparsemax(z))
    assert sparsemax(scale * z).sum(dim=1).tolist() == [1.0, 1.0]
    assert sparsemax(scale * z)[1].tolist() == [0.5, 0.5, 0.0, 0.0]


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
    assert whole.beside.sums == pytest.approx(k.sum(axis=0))
    assert whole.beside.products == pytest.approx((k[:, [2]] * k).sum(axis=0))


def test_the_largest_number_of_draws_does_not_overflow():
    assert MOST_SOFT_DRAWS * UNIT**2 < 2**63 <= (MOST_SOFT_DRAWS + 1) * UNIT**2
