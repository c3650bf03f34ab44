"""The votes of many inputs, added up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.soft import SoftVotes
from smoothcert.sampling.blocks import NO_CANDIDATE, Beside, Claim, Soft, Votes
from smoothcert.sampling.duels import Lost
from smoothcert.sampling.margins import Spread

Ints = NDArray[np.int64]
Counts = NDArray[Any]
"""Whole numbers: in 32 bits where there are many inputs, in 64 where a few are computed with."""

SEVERAL = -2
"""Named where draws of one input were made for different classes, which a sound run does not have."""


class Others(ABC):
    """What is added up beside the label counts, a row each input."""

    named: Ints
    """The class that the estimation draws of each input were made for."""

    @property
    @abstractmethod
    def candidates(self) -> Ints:
        """The class of each input that the selection chose."""

    @abstractmethod
    def add(self, beside: Beside, draws: int, row: int, sample: int) -> None:
        """Further draws of an input."""

    @abstractmethod
    def rows(self, some: slice) -> Others:
        """Those of some inputs."""


def _only(named: int, candidate: int) -> int:
    """The candidate that all rows so far and this one are about."""
    return candidate if named in (NO_CANDIDATE, candidate) else SEVERAL


@dataclass
class Shares(Others):
    """Sums of the shares of both samples."""

    selection: SoftVotes
    estimation: SoftVotes
    named: Ints

    @classmethod
    def zeros(cls, inputs: int, num_classes: int) -> Shares:
        selection, estimation = (SoftVotes.zeros(inputs, num_classes) for _ in range(2))
        return cls(selection, estimation, np.full(inputs, NO_CANDIDATE))

    @property
    def candidates(self) -> Ints:
        return self.selection.candidates

    def add(self, beside: Beside, draws: int, row: int, sample: int) -> None:
        assert isinstance(beside, Soft)
        (self.selection, self.estimation)[sample].add(row, draws, beside.sums, beside.squares, beside.products)
        if sample:
            self.named[row] = _only(self.named[row], beside.candidate)

    def rows(self, some: slice) -> Shares:
        return Shares(self.selection.rows(some), self.estimation.rows(some), self.named[some])


@dataclass
class Fought(Others):
    """The duels (m, c) that each candidate lost in the estimation sample, none with itself, and who it is."""

    lost: Counts
    chosen: Ints
    named: Ints
    selecting: dict[int, tuple[Lost, int]] = field(default_factory=dict)
    """The duels of the selection sample so far, and of how many draws."""

    @classmethod
    def zeros(cls, inputs: int, num_classes: int) -> Fought:
        chosen, named = np.full((2, inputs), NO_CANDIDATE)
        return cls(np.zeros((inputs, num_classes), dtype=np.int32), chosen, named)

    @property
    def candidates(self) -> Ints:
        return self.chosen

    def add(self, beside: Beside, draws: int, row: int, sample: int) -> None:
        assert isinstance(beside, Lost)
        if sample:
            self.named[row] = _only(self.named[row], beside.candidate)
            self.lost[row] += beside.of_class(beside.candidate, draws, self.lost.shape[1])
        else:
            so_far, n = self.selecting.get(row, (None, 0))
            joined = beside if so_far is None else Lost.join([so_far, beside])
            self.selecting[row] = joined, n + draws
            self.chosen[row] = joined.leader(n + draws)

    def rows(self, some: slice) -> Fought:
        return Fought(self.lost[some].astype(np.int64), self.chosen[some], self.named[some])


@dataclass
class Ramps(Others):
    """Margin votes as they are spread on the points of a grid: of each input the selection and the estimation sample so
    far, in parts that are yet to be joined, and how many draws each has, (inputs, 2)."""

    parts: list[tuple[list[Spread], list[Spread]]]
    draws: Ints
    named: Ints
    num_classes: int

    @classmethod
    def zeros(cls, inputs: int, num_classes: int) -> Ramps:
        draws = np.zeros((inputs, 2), dtype=np.int64)
        return cls([([], []) for _ in range(inputs)], draws, np.full(inputs, NO_CANDIDATE), num_classes)

    @property
    def candidates(self) -> Ints:
        n0 = self.draws[:, 0].tolist()
        chosen = [self.sample(i, 0).leader(draws) if draws else NO_CANDIDATE for i, draws in enumerate(n0)]
        return np.array(chosen, dtype=np.int64)

    def add(self, beside: Beside, draws: int, row: int, sample: int) -> None:
        """Parts are joined with those that are not much larger: each weight as often as numbers are doubled."""
        assert isinstance(beside, Spread)
        parts = self.parts[row][sample]
        parts.append(beside)
        while len(parts) > 1 and len(parts[-2].weights) <= 2 * len(parts[-1].weights):
            parts[-2:] = [Spread.join(parts[-2:])]
        self.draws[row, sample] += draws
        if sample:
            self.named[row] = _only(self.named[row], beside.candidate)

    def rows(self, some: slice) -> Ramps:
        return Ramps(self.parts[some], self.draws[some], self.named[some], self.num_classes)

    def sample(self, row: int, sample: int) -> Spread:
        """All votes of a sample that has any."""
        parts = self.parts[row][sample]
        parts[:] = [Spread.join(parts)]
        return parts[0]

    def rivals(self, row: int, k: int) -> Ints:
        """The rivals against whom a class does not have every vote in both samples, and itself."""
        return np.union1d(*(self.sample(row, sample).listed(k) for sample in (0, 1)))

    def votes(self, row: int, k: int, rivals: Ints) -> NDArray[np.float64]:
        """How many of the votes of a class against these rivals, in ascending order, are at each point, in the two
        samples: (2, rivals, points)."""
        both = ((self.sample(row, sample), int(self.draws[row, sample])) for sample in (0, 1))
        return np.stack([spread.of_class(k, draws, rivals) for spread, draws in both])


@dataclass
class Tally:
    """A row each input: label counts of the selection and the estimation sample, what the kind of votes has beside
    them, and the claims where radii were claimed as the draws ended (None where the votes are what proves them).
    """

    selections: Counts
    estimations: Counts
    seconds: NDArray[np.float64]
    others: Others | None = None
    claims: list[Claim] | None = None

    @classmethod
    def zeros(cls, inputs: int, num_classes: int, others: Others | None = None) -> Tally:
        """No draws yet; `add` changes the arrays."""
        counts = np.zeros((2, inputs, num_classes), dtype=np.int32)
        return cls(counts[0], counts[1], np.zeros(inputs), others)

    def add(self, votes: Votes, row: int, sample: int) -> None:
        """Further votes of an input, in the selection sample (0) or the estimation sample (1)."""
        (self.selections, self.estimations)[sample][row, votes.classes] += votes.counts
        self.seconds[row] += votes.seconds
        if votes.beside is not None and self.others is not None:
            self.others.add(votes.beside, votes.draws, row, sample)

    def rows(self, some: slice) -> Tally:
        """Those of some inputs, to compute with."""
        others = None if self.others is None else self.others.rows(some)
        claims = None if self.claims is None else self.claims[some]
        selections, estimations = (counts[some].astype(np.int64) for counts in (self.selections, self.estimations))
        return Tally(selections, estimations, self.seconds[some], others, claims)

    @property
    def shares(self) -> Shares:
        """Asked for only where votes are soft."""
        assert isinstance(self.others, Shares)
        return self.others

    @property
    def duels(self) -> Fought:
        """Asked for only where votes are duels."""
        assert isinstance(self.others, Fought)
        return self.others

    @property
    def ramps(self) -> Ramps:
        """Asked for only where votes are margins."""
        assert isinstance(self.others, Ramps)
        return self.others

    @property
    def draws(self) -> Ints:
        """The draws (2, inputs) of both samples."""
        return np.stack([self.selections.sum(axis=1), self.estimations.sum(axis=1)])
