"""Margin votes: in the duel of class k with class j a draw gives k `clip(½ + (f_k − f_j) / 2w, 0, 1)`, a ramp.

Some classes are followed: the candidate, or before there is one, those that won a draw. The votes of each against each
rival are rounded down to whole multiples of 1/UNIT, and kept spread on the points `0, 1/POINTS, …, 1`: a vote between
two of them gives both its weight, so that its mean is kept. Whole numbers add up to the same in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.sampling.blocks import BLOCK, NO_CANDIDATE, UNIT
from smoothcert.sampling.duels import added_up

Ints = NDArray[np.int64]
POINTS = 32
WEIGHT = UNIT // POINTS
"""The weight of one vote: from a point to the next there are so many multiples of 1/UNIT."""

ROUNDING = 2.0**-50
"""Relative, more than three operations in float64 can be off: by so much a margin is lowered."""


@dataclass(frozen=True)
class Spread:
    """Of the votes of class `classes[i]` against class `rivals[i]` the weight at point `points[i]`, which is
    `weights[i]`; they ascend, and each comes once. What is missing of the weight of all draws is at the last point.

    As its own rival a class has ½, in all draws in which it was followed: in all others its votes are counted as 0.
    """

    classes: Ints
    rivals: Ints
    points: Ints
    weights: Ints

    @classmethod
    def of(cls, scores: NDArray[Any], width: float, candidate: int) -> Spread:
        """The votes of the rows of scores (draws, c) of consecutive blocks.

        Without a candidate each block follows the classes that won a draw in it.
        """
        if candidate != NO_CANDIDATE:
            return cls._in_block(scores, width, [candidate])
        blocks = (scores[first : first + BLOCK] for first in range(0, len(scores), BLOCK))
        return cls.join([cls._in_block(rows, width, np.unique(rows.argmax(axis=1))) for rows in blocks])

    @classmethod
    def _in_block(cls, scores: NDArray[Any], width: float, followed: Sequence[int] | Ints) -> Spread:
        spread = np.stack([_spread(votes(scores, k, width)) for k in followed])[..., :-1]
        at, rivals, points = spread.nonzero()
        return cls(np.asarray(followed, dtype=np.int64)[at], rivals, points, spread[at, rivals, points])

    @classmethod
    def join(cls, parts: Sequence[Spread]) -> Spread:
        """Those of several ranges of draws as one."""
        if len(parts) == 1:
            return parts[0]
        names = "classes", "rivals", "points", "weights"
        return cls(*added_up(*(np.concatenate([getattr(p, name) for p in parts]) for name in names)))

    def equals(self, other: Spread) -> bool:
        ours, theirs = ([s.classes, s.rivals, s.points, s.weights] for s in (self, other))
        return len(self.weights) == len(other.weights) and np.array_equal(ours, theirs)

    @property
    def candidate(self) -> int:
        """The class that alone is followed: the candidate, or the winner of every draw."""
        return int(self.classes[0]) if self.classes[0] == self.classes[-1] else NO_CANDIDATE

    def leader(self, draws: int) -> int:
        """The class whose hardest duel is best, the lowest id among equal ones."""
        classes, hardest = self.hardest()
        return int(classes[hardest.argmax()])

    def hardest(self) -> tuple[Ints, Ints]:
        """The classes that were followed, and the sum of each one's votes in its hardest duel, in multiples of
        1/UNIT."""
        itself, pairs, first = self.classes == self.rivals, _starts(self.classes, self.rivals), _starts(self.classes)
        missing = np.add.reduceat(np.where(itself, 0, (POINTS - self.points) * self.weights), pairs)
        followed = POINTS * np.add.reduceat(np.where(itself, self.weights, 0), first)
        return self.classes[first], followed - np.maximum.reduceat(missing, _starts(self.classes[pairs]))

    def listed(self, k: int) -> Ints:
        """The rivals against whom a class does not have every vote, and itself."""
        return np.unique(self.rivals[self.classes == k])

    def of_class(self, k: int, draws: int, rivals: Ints) -> NDArray[np.float64]:
        """How many of so many votes of a followed class are at each point (rivals, POINTS + 1), against these rivals,
        in ascending order."""
        followed = self.weights[(self.classes == k) & (self.rivals == k)].sum() / WEIGHT
        own = (self.classes == k) & np.isin(self.rivals, rivals)
        votes = np.zeros((len(rivals), POINTS + 1))
        votes[np.searchsorted(rivals, self.rivals[own]), self.points[own]] = self.weights[own] / WEIGHT
        votes[:, 0] += draws - followed
        votes[:, -1] = draws - votes.sum(axis=1)
        return votes


def votes(scores: NDArray[Any], k: int, width: float) -> Ints:
    """The votes (draws, c) of class k against every rival in multiples of 1/UNIT, rounded down.

    Rounded down, two classes never have more than a whole vote between them: `⌊t⌋ + ⌊−t⌋ ≤ 0`.
    """
    with np.errstate(over="ignore"):
        margins = (scores[:, [k]] - scores) * (UNIT / (2 * width))
    lowered = np.floor(margins * (1 - np.copysign(ROUNDING, margins)))
    return np.asarray(np.clip(lowered, -UNIT // 2, UNIT // 2) + UNIT // 2).astype(np.int64)


def leader(scores: NDArray[Any], width: float) -> int:
    """The class that leads in one sample of draws (draws, c): of those that win one, its hardest duel is best."""
    won = np.unique(scores.argmax(axis=1))
    hardest = [np.delete(votes(scores, k, width).sum(axis=0), k).min() for k in won]
    return int(won[np.argmax(hardest)])


def _spread(votes: Ints) -> Ints:
    """The weights (c, POINTS + 1) of votes (draws, c)."""
    c = votes.shape[1]
    point, beyond = np.divmod(votes, WEIGHT)
    at = (point + (POINTS + 1) * np.arange(c)).ravel()
    size, beyond = c * (POINTS + 1) + 1, beyond.ravel()
    weights = np.bincount(at, WEIGHT - beyond, size) + np.bincount(at + 1, beyond, size)
    return weights[:-1].reshape(c, POINTS + 1).astype(np.int64)


def _starts(*columns: Ints) -> Ints:
    """Where rows begin that differ from the one before."""
    return np.flatnonzero(np.any([np.diff(column, prepend=-1) != 0 for column in columns], axis=0))
