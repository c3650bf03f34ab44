"""Duels: of two classes, the one with the larger score wins a draw, of equal ones the first, as argmax has it.

Some classes are followed: the candidate, or before there is one, those that won a draw. Kept is how many duels each of
them lost against each rival, the few that there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.sampling.blocks import BLOCK, NO_CANDIDATE

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Lost:
    """`counts[i]` of the duels of class `classes[i]` with class `rivals[i]` were lost; pairs ascend, each comes once.

    As its own rival a class has the number of draws in which it was followed: it is counted as beaten in all others.
    """

    classes: Ints
    rivals: Ints
    counts: Ints

    @classmethod
    def of(cls, scores: NDArray[Any], candidate: int) -> Lost:
        """The lost duels in the rows of scores (draws, c) of consecutive blocks.

        Without a candidate each block follows the classes that won a draw in it.
        """
        if candidate != NO_CANDIDATE:
            return cls._in_block(scores, [candidate])
        blocks = (scores[first : first + BLOCK] for first in range(0, len(scores), BLOCK))
        return cls.join([cls._in_block(rows, np.unique(rows.argmax(axis=1))) for rows in blocks])

    @classmethod
    def _in_block(cls, scores: NDArray[Any], followed: Sequence[int] | Ints) -> Lost:
        lost = np.stack([_lost(scores, k) for k in followed])
        at, rivals = lost.nonzero()
        return cls(np.asarray(followed, dtype=np.int64)[at], rivals, lost[at, rivals])

    @classmethod
    def join(cls, parts: Sequence[Lost]) -> Lost:
        """Those of several ranges of draws as one."""
        if len(parts) == 1:
            return parts[0]
        columns = (np.concatenate([getattr(p, name) for p in parts]) for name in ("classes", "rivals", "counts"))
        return cls(*added_up(*columns))

    def equals(self, other: Lost) -> bool:
        ours, theirs = ([d.classes, d.rivals, d.counts] for d in (self, other))
        return len(self.counts) == len(other.counts) and np.array_equal(ours, theirs)

    @property
    def candidate(self) -> int:
        """The class that alone is followed: the candidate, or the winner of every draw."""
        return int(self.classes[0]) if self.classes[0] == self.classes[-1] else NO_CANDIDATE

    def leader(self, draws: int) -> int:
        """The class whose worst duel is best."""
        return int(leaders(np.zeros_like(self.classes), self, np.array([draws]))[0])

    def against(self, k: int, draws: int) -> tuple[Ints, Ints, int]:
        """Rivals of a followed class, how many duels it lost to each in so many draws, and how many to any other."""
        own, itself = self.classes == k, self.rivals == k
        rest = draws - int(self.counts[own & itself].sum())
        return self.rivals[own & ~itself], self.counts[own & ~itself] + rest, rest

    def of_class(self, k: int, draws: int, num_classes: int) -> Ints:
        """The duels (c,) that a followed class lost in so many draws; none against itself."""
        rivals, counts, rest = self.against(k, draws)
        lost = np.full(num_classes, rest, dtype=np.int64)
        lost[rivals] = counts
        lost[k] = 0
        return lost


def _lost(scores: NDArray[Any], k: int) -> Ints:
    """How often class k lost against each rival (c,); in its own place the number of draws."""
    own = scores[:, k, None]
    before, behind = scores[:, :k] >= own, scores[:, k + 1 :] > own
    lost = [before.sum(axis=0), [len(scores)], behind.sum(axis=0)]
    return np.concatenate(lost).astype(np.int64)


def added_up(*columns: Ints) -> tuple[Ints, ...]:
    """Rows whose first columns agree as one, with the sum of the last column; in ascending order."""
    *keys, counts = columns
    order = np.lexsort(keys[::-1])
    keys = [k[order] for k in keys]
    new = np.any([np.diff(k, prepend=-1) != 0 for k in keys], axis=0)
    return *(k[new] for k in keys), np.add.reduceat(counts[order], np.flatnonzero(new))


def leaders(inputs: Ints, lost: Lost, draws: Ints) -> Ints:
    """The class of each input that lost least in its worst duel, the lowest id among equal ones.

    Entry i of the lost duels, sorted and each pair once, is of input `inputs[i]`; input i has draws[i] draws.
    """
    itself = lost.classes == lost.rivals
    first = np.flatnonzero(np.any([np.diff(v, prepend=-1) != 0 for v in (inputs, lost.classes)], axis=0))
    worst = np.maximum.reduceat(np.where(itself, 0, lost.counts), first)
    of, followed = inputs[first], np.add.reduceat(np.where(itself, lost.counts, 0), first)
    order = np.lexsort((lost.classes[first], worst + draws[of] - followed, of))
    best: Ints = lost.classes[first][order][np.diff(of[order], prepend=-1) != 0]
    return best
