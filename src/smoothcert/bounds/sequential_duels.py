"""Duels that are drawn until the answer is known: `sequential`, with a test of two outcomes for each rival.

Every rival has its own test at the full α, and a radius is claimed when all have crossed, each at whatever look: a
crossing is remembered. A false claim implies that the test of the true hardest rival crossed falsely, and its draws are
independent whatever the other rivals do: one event of probability at most α. Only power rests on when draws are given
up, which is counted rival by rival.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from smoothcert.bounds.binomial import lower_quantile, may_exceed
from smoothcert.bounds.method import Counts
from smoothcert.bounds.sequential import Decision
from smoothcert.bounds.spending import Looks, boundary, give_up, portions


@dataclass(frozen=True)
class SequentialDuels(ABC):
    """What is asked of every input, fixed before the first draw, with looks `at` so many draws."""

    sigma: float
    at: Looks
    alpha: float
    futility: float

    def decide(self, n0: int, selected: Counts, lost: Counts) -> Decision:
        """What to do with an input after the looks so far.

        `selected` (c − 1,) are the duels with each rival that its candidate lost in the n0 selection draws, `lost`
        (i, c − 1) those in the estimation draws up to each of the first i looks.
        """
        i = len(lost)
        n = self.at[i - 1] if i else 0
        pooled = n0 + n - selected - (lost[-1] if i else 0)
        radius, done = self.claim(np.array(self.at[:i])[:, None] - lost, pooled, n0)
        stop = done or i == len(self.at)
        return Decision(radius, stop, n if stop else self.at[i])

    @abstractmethod
    def claim(self, won: Counts, pooled: Counts, n0: int) -> tuple[float, bool]:
        """The radius that is claimed, and whether to stop: `won` (i, c − 1) are the duels won up to each look,
        `pooled` those of the last look and of the selection together."""

    def may_claim(self, lost: Counts, radius: float) -> bool:
        """Can this radius have been claimed after the looks so far? Never False where it has: every rival has the
        Clopper-Pearson bound at the level of a look."""
        draws, levels = np.array(self.at[: len(lost)])[:, None], self.levels[: len(lost), None]
        return len(lost) > 0 and bool(may_exceed(draws - lost, draws, radius / self.sigma, levels).any(axis=0).all())

    @property
    @abstractmethod
    def levels(self) -> NDArray[np.float64]:
        """At most how much of α is spent on a claim at each look."""

    def hopeless(self, target: float, i: int, pooled: Counts, n0: int) -> bool:
        """Will one of these duels hardly prove `p > target`?"""
        return bool((pooled < give_up(target, self.at, self.alpha, self.futility, n0)[i]).any())


@dataclass(frozen=True)
class UntilClaimed(SequentialDuels):
    """Radii from small to large, each claimed by the exact boundaries when all smaller ones are.

    >>> rule = UntilClaimed(0.5, (100, 200), 0.001, 0.05, (0.25, 0.5))
    >>> rule.decide(100, np.array([3, 0]), np.empty((0, 2), dtype=int))
    Decision(radius=0.0, stop=False, next_n=100)
    >>> rule.decide(100, np.array([3, 0]), np.array([[1, 0]]))
    Decision(radius=0.5, stop=True, next_n=100)
    """

    radii: tuple[float, ...]

    def claim(self, won: Counts, pooled: Counts, n0: int) -> tuple[float, bool]:
        radius = 0.0
        for r in self.radii:
            target = float(special.ndtr(r / self.sigma))
            crossed = (won >= boundary(target, self.at, self.alpha)[: len(won), None]).any(axis=0)
            if not crossed.all():
                return radius, self.hopeless(target, len(won), pooled[~crossed], n0)
            radius = r
        return radius, True

    @property
    def levels(self) -> NDArray[np.float64]:
        return np.cumsum(portions(self.at, self.alpha))


@dataclass(frozen=True)
class UntilNarrow(SequentialDuels):
    """Until the radius is within `width` of what so many wins of max_n draws would prove.

    Each look has a bound of its own for each rival, at its portion of α: all those of one rival hold at once, so its
    best does.
    """

    width: float

    def claim(self, won: Counts, pooled: Counts, n0: int) -> tuple[float, bool]:
        i = len(won)
        radius, enough = 0.0, np.inf
        if i:
            radius = max(self.sigma * float(self._bounds(won).max(axis=0).min()), 0.0)
            at_most = int(won[-1].min()) * self.at[-1] // self.at[i - 1]
            enough = (1 - self.width) * self.sigma * float(lower_quantile(at_most, self.at[-1], self.alpha))
        return radius, 0 < radius >= enough or self.hopeless(0.5, i, pooled, n0)

    @property
    def levels(self) -> NDArray[np.float64]:
        return portions(self.at, self.alpha)

    def _bounds(self, won: Counts) -> NDArray[np.float64]:
        return lower_quantile(won, np.array(self.at)[: len(won), None], self.levels[: len(won), None])
