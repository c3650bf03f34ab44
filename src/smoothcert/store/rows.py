"""Which rows of votes can belong to a run: one rule, for one row or for many."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.plan import Duels, Margins, Plan
from smoothcert.sampling.blocks import BLOCK, Claim, Phase, Soft, Votes
from smoothcert.sampling.duels import Lost
from smoothcert.sampling.margins import POINTS, WEIGHT, Spread

Ints = NDArray[np.int64]
STORED = (Phase.SELECTION, Phase.ESTIMATION)


@dataclass(frozen=True)
class Keys:
    """Of each row, in the order in which rows are read: by input, the selection first, then by block.

    `sample` is 0 for the selection, 1 for the estimation and -1 for any other phase; `top` is the largest class with a
    vote, `shares` how many classes have sums of shares. Entry i of the `lost` duels is of row `lost_in[i]`. Margin
    votes are read one row at a time: theirs is `spread`.
    """

    position: Ints
    sample: Ints
    first: Ints
    last: Ints
    draws: Ints
    top: Ints
    shares: Ints
    lost_in: Ints
    lost: Lost
    spread: Spread | None = None

    @classmethod
    def of(cls, votes: Votes) -> Keys:
        """The key of one row."""
        sample = STORED.index(votes.phase) if votes.phase in STORED else -1
        shares = votes.beside.sums.size if isinstance(votes.beside, Soft) else 0
        lost = votes.beside if isinstance(votes.beside, Lost) else Lost(*np.zeros((3, 0), dtype=np.int64))
        numbers = votes.position, sample, votes.first, votes.last, votes.draws, int(votes.classes.max()), shares
        spread = votes.beside if isinstance(votes.beside, Spread) else None
        columns: list[Any] = [*np.array(numbers)[:, None], np.zeros_like(lost.classes), lost, spread]
        return cls(*columns)


Before = tuple[int, int, int]
"""Position, sample and end of the row before."""

NOTHING: Before = (-1, 0, 0)


def end_of(keys: Keys) -> Before:
    """What comes before the rows that follow these."""
    return int(keys.position[-1]), int(keys.sample[-1]), int(keys.last[-1])


def fit(keys: Keys, plan: Plan, before: Before) -> bool:
    """Can the rows, coming after the one before, belong to the run? No block is there twice, none has more or fewer
    draws than were planned, none is of an unknown input or class.

    A rule that looks at the votes sees them in order, the selection first: there nothing may be missing in between.
    """
    n0, most = plan.question.n0, plan.question.draws.most
    margins = isinstance(plan.classifier.votes, Margins)
    same_input = keys.position == np.append(before[0], keys.position[:-1])
    earlier = np.append(before[1], keys.sample[:-1])
    reached = np.append(before[2], keys.last[:-1])
    same = same_input & (keys.sample == earlier)
    end = np.where(same, reached, 0)
    wanted = np.where(keys.sample == 1, most, n0)
    good = (
        (keys.sample >= 0)
        & (keys.position >= 0)
        & (keys.position < plan.selection.total)
        & (keys.first >= end)
        & (keys.draws == np.minimum(BLOCK * keys.last, wanted) - BLOCK * keys.first)
        & (keys.top < plan.classifier.num_classes)
        & (keys.shares == (0 if margins or not plan.classifier.votes.soft else plan.classifier.num_classes))
        & _duels_fit(keys, plan)
        & (_spread_fits(keys, plan) if margins else keys.spread is None)
    )
    if plan.adaptive:
        selected = same_input & (earlier == 0) & (BLOCK * reached >= n0)
        good &= (keys.first == end) & (same | (keys.sample == 0) | selected)
    return bool(good.all())


def claim_fits(claim: Claim, plan: Plan) -> bool:
    """Can the claim belong to the run? It is of a known class or of none, has no more draws than were planned, and
    where radii were asked for it is one of them."""
    known = ABSTAIN <= claim.prediction < plan.classifier.num_classes and claim.n <= plan.question.draws.most
    return known and (not plan.radii or claim.radius == 0 or _is_among(claim.radius, plan.radii))


def _is_among(value: float, ascending: Sequence[float]) -> bool:
    i = bisect_left(ascending, value)
    return i < len(ascending) and ascending[i] == value


def _duels_fit(keys: Keys, plan: Plan) -> NDArray[np.bool_]:
    """Which rows have lost duels as they are counted: each pair once and in order, of known classes, no more than the
    draws in which the class was followed; where the radius is proved, of one class in all draws. None of other votes.
    """
    c, rows = plan.classifier.num_classes, len(keys.draws)
    if not isinstance(plan.classifier.votes, Duels):
        return np.asarray(np.bincount(keys.lost_in, minlength=rows) == 0)
    row, k, j, lost = keys.lost_in, keys.lost.classes, keys.lost.rivals, keys.lost.counts
    pair = (row * c + k) * c + j
    first = np.diff(row * c + k, prepend=-1) != 0
    followed = np.bincount(np.cumsum(first) - 1, np.where(k == j, lost, 0))[np.cumsum(first) - 1] if len(row) else lost
    wrong = (k >= c) | (j >= c) | (np.diff(pair, prepend=-1) <= 0) | (lost < 1) | (lost > followed)
    wrong |= followed > keys.draws[row]
    wrong |= (keys.sample[row] == 1) & (followed != keys.draws[row])
    classes = np.bincount(row, first, rows)
    good = (np.bincount(row, wrong, rows) == 0) & (classes >= 1) & ((keys.sample != 1) | (classes == 1))
    return np.asarray(good)


def _spread_fits(keys: Keys, plan: Plan) -> bool:
    """Are there margin votes as they are counted: each weight once and in order, of known classes and points but the
    last, no more of a pair than the draws in which the class was followed; where the radius is proved, of one class in
    all draws?"""
    if keys.spread is None:
        return False
    c, (draws,) = plan.classifier.num_classes, keys.draws
    k, j, point, weight = keys.spread.classes, keys.spread.rivals, keys.spread.points, keys.spread.weights
    if (k >= c).any() or (j >= c).any() or (point >= POINTS).any() or (weight < 1).any():
        return False
    if (np.diff((k * c + j) * POINTS + point, prepend=-1) <= 0).any() or (weight > draws * WEIGHT).any():
        return False
    of, pair = (np.cumsum(np.diff(key, prepend=-1) != 0) - 1 for key in (k, k * c + j))
    own, total = np.bincount(of, np.where(k == j, weight, 0)), np.bincount(pair, weight)
    followed = (own >= WEIGHT) & (own % WEIGHT == 0)
    fits = followed.all() and (point[k == j] == POINTS // 2).all() and (total[pair] <= own[of]).all()
    return bool(fits and (keys.sample[0] != 1 or (len(own) == 1 and own[0] == draws * WEIGHT)))
