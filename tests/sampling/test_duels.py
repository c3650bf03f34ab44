"""Lost duels: counted as argmax would, the same however draws are grouped, and who leads in them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert.plan import Duels
from smoothcert.sampling.blocks import BLOCK, NO_CANDIDATE, Phase, Votes, join
from smoothcert.sampling.duels import Lost
from smoothcert.store.schema import pack, unpack

scores = st.builds(
    lambda seed, n, c, values: np.random.default_rng(seed).integers(0, values, size=(n, c)).astype(float),
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 260),
    c=st.integers(2, 6),
    values=st.integers(1, 9),
)
"""Few values, so that many scores are equal."""


def by_definition(rows, k, j):
    """How often a two-class argmax of the scores of k and j, in their order, does not choose k."""
    first, second = sorted((k, j))
    chosen = np.where(rows[:, second] > rows[:, first], second, first)
    return int((chosen != k).sum())


@given(scores, st.data())
@settings(max_examples=30)
def test_a_duel_is_an_argmax_of_two(rows, data):
    c = rows.shape[1]
    k = data.draw(st.integers(0, c - 1))
    lost = Lost.of(rows, k)
    assert lost.candidate == k
    assert lost.of_class(k, len(rows), c).tolist() == [0 if j == k else by_definition(rows, k, j) for j in range(c)]


@given(scores)
@settings(max_examples=30)
def test_whoever_wins_a_draw_wins_all_its_duels_in_it(rows):
    wins = np.bincount(rows.argmax(axis=1), minlength=rows.shape[1])
    for k in range(rows.shape[1]):
        assert len(rows) - Lost.of(rows, k).of_class(k, len(rows), rows.shape[1]).max() >= wins[k]


@given(scores, st.data())
@settings(max_examples=30)
def test_blocks_add_up_to_the_same_in_any_grouping(rows, data):
    for candidate in (NO_CANDIDATE, 1):
        whole = Lost.of(rows, candidate)
        cut = BLOCK * data.draw(st.integers(0, (len(rows) - 1) // BLOCK))
        parts = [Lost.of(part, candidate) for part in (rows[:cut], rows[cut:]) if len(part)]
        assert Lost.join(parts).equals(whole)


@given(scores)
@settings(max_examples=30)
def test_the_leader_lost_least_in_its_worst_duel(rows):
    """A class that won no draw of a block is taken to have lost all its duels there."""
    c = rows.shape[1]
    lost = np.zeros((c, c), dtype=int)
    for block in np.split(rows, range(BLOCK, len(rows), BLOCK)):
        won = set(block.argmax(axis=1))
        for k in range(c):
            lost[k] += [by_definition(block, k, j) if k in won else len(block) for j in range(c)]
            lost[k, k] = 0
    assert Lost.of(rows, NO_CANDIDATE).leader(len(rows)) == lost.max(axis=1).argmin()


@given(scores)
@settings(max_examples=30)
def test_a_class_with_most_of_all_labels_leads(rows):
    wins = np.bincount(rows.argmax(axis=1))
    if 2 * wins.max() > len(rows):
        assert Lost.of(rows, NO_CANDIDATE).leader(len(rows)) == wins.argmax()


def test_the_cyclic_class_that_loses_least_is_chosen():
    """0 beats 1, 1 beats 2, 2 beats 0, each two times in three: nobody wins all duels, and the first leads."""
    rows = np.array([[2, 1, 0], [0, 2, 1], [1, 0, 2]] * 10)
    assert Lost.of(rows, NO_CANDIDATE).leader(30) == 0
    assert Lost.of(rows, 0).of_class(0, 30, 3).tolist() == [0, 10, 20]


@given(scores)
@settings(max_examples=30)
def test_a_stored_row_comes_back(rows):
    labels, counts = np.unique(rows.argmax(axis=1), return_counts=True)
    last = -(-len(rows) // BLOCK)
    for candidate in (NO_CANDIDATE, 0):
        votes = Votes(3, Phase.SELECTION, 0, last, len(rows), labels, counts, 0.5, Lost.of(rows, candidate))
        assert unpack(pack(votes)).says_the_same_as(votes)
        assert join([votes]).says_the_same_as(votes)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int32])
def test_scores_of_any_precision_tie_as_their_argmax_does(dtype):
    raw = torch.randn(400, 5, generator=torch.Generator().manual_seed(0))
    rows = (raw * 3).to(dtype) if dtype != torch.float64 else raw.double() + 1e-12 * raw.double()
    ballots = Duels().ballots(rows).numpy()
    assert (ballots.argmax(axis=1) == rows.argmax(dim=1).numpy()).all()
    wins = np.bincount(rows.argmax(dim=1).numpy(), minlength=5)
    assert (400 - np.array([Lost.of(ballots, k).of_class(k, 400, 5).max() for k in range(5)]) >= wins).all()
