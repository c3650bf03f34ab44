"""Which rows of votes can belong to a run: one rule, for one row or for many."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothcert.plan import Plan
from smoothcert.sampling.blocks import BLOCK, Phase, Votes

Ints = NDArray[np.int64]
STORED = (Phase.SELECTION, Phase.ESTIMATION)


@dataclass(frozen=True)
class Keys:
    """Of each row, in the order in which rows are read: by input, the selection first, then by block.

    `sample` is 0 for the selection, 1 for the estimation and -1 for any other phase; `top` is the largest class with a
    vote, `shares` how many classes have sums of shares.
    """

    position: Ints
    sample: Ints
    first: Ints
    last: Ints
    draws: Ints
    top: Ints
    shares: Ints

    @classmethod
    def of(cls, votes: Votes) -> Keys:
        """The key of one row."""
        sample = STORED.index(votes.phase) if votes.phase in STORED else -1
        shares = votes.soft.sums.size if votes.soft else 0
        numbers = votes.position, sample, votes.first, votes.last, votes.draws, int(votes.classes.max()), shares
        return cls(*(np.array([number]) for number in numbers))


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
        & (keys.shares == (plan.classifier.num_classes if plan.classifier.votes.soft else 0))
    )
    if plan.adaptive:
        selected = same_input & (earlier == 0) & (BLOCK * reached >= n0)
        good &= (keys.first == end) & (same | (keys.sample == 0) | selected)
    return bool(good.all())
