"""The votes of many inputs, added up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.soft import SoftVotes
from smoothcert.sampling.blocks import NO_CANDIDATE, Claim, Phase, Votes

Ints = NDArray[np.int64]


@dataclass
class Tally:
    """A row each input: label counts of the selection and the estimation sample, shares beside them where votes are
    soft, and the claims where radii were claimed as the draws ended (None where the votes are what proves them).
    """

    selections: Ints
    estimations: Ints
    seconds: NDArray[np.float64]
    shares: tuple[SoftVotes, SoftVotes] | None = None
    named: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    claims: list[Claim] | None = None

    @classmethod
    def zeros(cls, inputs: int, num_classes: int, soft: bool) -> Tally:
        """No draws yet; `add` changes the arrays."""
        counts = np.zeros((2, inputs, num_classes), dtype=np.int64)
        shares = tuple(SoftVotes.zeros(inputs, num_classes) for _ in range(2)) if soft else None
        return cls(counts[0], counts[1], np.zeros(inputs), shares, np.full(inputs, NO_CANDIDATE))  # type: ignore[arg-type]

    def add(self, votes: Votes, row: int, sample: int) -> None:
        """Further votes of an input, in the selection sample (0) or the estimation sample (1)."""
        (self.selections, self.estimations)[sample][row, votes.classes] += votes.counts
        self.seconds[row] += votes.seconds
        if votes.soft is not None and self.shares is not None:
            s = votes.soft
            self.shares[sample].add(row, votes.draws, s.sums, s.squares, s.products)
            self.named[row] = max(self.named[row], s.candidate)

    def rows(self, some: slice) -> Tally:
        """Those of some inputs, not copied."""
        shares = None if self.shares is None else (self.shares[0].rows(some), self.shares[1].rows(some))
        claims = None if self.claims is None else self.claims[some]
        counts = self.selections[some], self.estimations[some]
        return Tally(*counts, self.seconds[some], shares, self.named[some], claims)

    @property
    def soft(self) -> tuple[SoftVotes, SoftVotes]:
        """The shares of the two samples; asked for only where votes are soft."""
        assert self.shares is not None
        return self.shares

    @property
    def draws(self) -> Ints:
        """The draws (2, inputs) of both samples."""
        return np.stack([self.selections.sum(axis=1), self.estimations.sum(axis=1)])


def sample_of(draws: Mapping[Phase, int]) -> dict[Phase, int]:
    """Which sample a phase belongs to: the last one estimates, one before it selects."""
    return {phase: 1 if phase == list(draws)[-1] else 0 for phase in draws}
