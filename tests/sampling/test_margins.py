"""Margin votes as they are counted: rounded down, spread on a grid, the same in any order."""

from fractions import Fraction

import numpy as np
import pytest

from smoothcert.sampling.blocks import NO_CANDIDATE, UNIT
from smoothcert.sampling.duels import Lost
from smoothcert.sampling.margins import POINTS, Spread, leader, votes

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(350, 5)).astype(np.float32).astype(np.float64)
POINT = np.linspace(0, 1, POINTS + 1)


def exactly(row, k, width):
    """The votes of class k, in fractions."""
    half = Fraction(1, 2)
    margins = [(Fraction(row[k]) - Fraction(z)) / (2 * Fraction(width)) for z in row]
    return [min(max(half + m, Fraction(0)), Fraction(1)) for m in margins]


@pytest.mark.parametrize("width", [1e-30, 0.1, 1.0, 3.7, 1e30])
def test_votes_are_rounded_down_by_less_than_two_units(width):
    for k in range(5):
        for row, ours in zip(SCORES[:40], votes(SCORES[:40], k, width).tolist(), strict=True):
            for true, v in zip(exactly(row.tolist(), k, width), ours, strict=True):
                assert 0 <= true - Fraction(v, UNIT) < Fraction(2, UNIT)


@pytest.mark.parametrize("width", [1e-30, 1e-3, 0.3, 7.0, 1e30])
def test_two_classes_have_no_more_than_one_vote_between_them(width):
    scores = np.concatenate([SCORES, np.zeros((1, 5)), 1e38 * SCORES[:3], 1e308 * np.sign(SCORES[:3])])
    ours = np.stack([votes(scores, k, width) for k in range(5)], axis=1)
    assert (ours + ours.swapaxes(1, 2) <= UNIT).all()
    assert (ours[:, range(5), range(5)] == UNIT // 2).all()


def test_spreading_keeps_the_mean():
    for k in range(5):
        spread = Spread.of(SCORES, 0.8, k).of_class(k, 350, np.arange(5))
        assert (spread.sum(axis=1) == 350).all()
        assert (spread @ POINT * UNIT).tolist() == votes(SCORES, k, 0.8).sum(axis=0).tolist()


def test_parts_add_up_to_the_whole():
    for k in (NO_CANDIDATE, 3):
        whole = Spread.of(SCORES, 0.8, k)
        parts = [Spread.of(SCORES[100 * b : 100 * b + 100], 0.8, k) for b in (3, 0, 2, 1)]
        assert Spread.join(parts).equals(whole)
        assert Spread.join([Spread.join(parts[:2]), *parts[2:]]).equals(whole)
    assert not Spread.of(SCORES, 0.8, 3).equals(Spread.of(SCORES, 0.8, 2))


def test_the_leader_has_the_best_hardest_duel():
    for start in range(0, 300, 10):
        scores = SCORES[start : start + 50]
        won = np.unique(scores.argmax(axis=1))
        least = [np.delete(votes(scores, k, 0.5).sum(axis=0), k).min() for k in won]
        spread = Spread.of(scores, 0.5, NO_CANDIDATE)
        assert spread.leader(50) == leader(scores, 0.5) == won[np.argmax(least)]
        assert [column.tolist() for column in spread.hardest()] == [won.tolist(), least]


def test_a_class_that_a_block_does_not_follow_has_no_votes_there():
    """It wins no draw of the second block, and is counted as if it had lost all its duels."""
    scores = np.zeros((200, 3))
    scores[:100, 0], scores[:, 1] = 5.0, 1.0
    spread = Spread.of(scores, 0.5, NO_CANDIDATE)
    assert spread.of_class(0, 200, np.arange(3))[:, 0].tolist() == [100, 100, 100]
    assert spread.of_class(1, 200, np.arange(3))[:, 0].tolist() == [100, 100, 100]
    assert spread.leader(200) == 0


def test_narrow_votes_are_duels():
    """Without ties a vote of hardly any width is a duel won or lost."""
    for k in range(5):
        lost = Lost.of(SCORES, k).of_class(k, 350, 5)
        spread = Spread.of(SCORES, 1e-12, k).of_class(k, 350, np.arange(5))
        others = np.arange(5) != k
        assert (spread[others, 0] == lost[others]).all()
        assert (spread[others, -1] == 350 - lost[others]).all()


def test_what_is_whole_takes_no_room():
    scores = np.zeros((100, 1000))
    scores[:, 7] = 1.0
    spread = Spread.of(scores, 0.5, 7)
    assert [spread.classes.tolist(), spread.rivals.tolist(), spread.points.tolist()] == [[7], [7], [POINTS // 2]]
    assert spread.of_class(7, 100, np.array([7, 1000]))[1, -1] == 100
