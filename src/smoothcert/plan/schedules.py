"""Schedules: which blocks are wanted next, told of the votes as they come.

A schedule is iterated for blocks, and told of votes in between. It yields None when it wants to know the votes of the
blocks so far before it goes on. Votes of an earlier session are told first, and their blocks are not asked for again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from smoothcert.sampling.blocks import NO_CANDIDATE, Beside, Block, Claim, Phase, Votes, blocks_of


class Schedule(Protocol):
    """What the sampling loop asks of a schedule."""

    def __iter__(self) -> Iterator[Block | None]: ...

    def tell(self, votes: Votes) -> Claim | None:
        """Takes note of votes; returns the claim of an input that needs no more."""

    @property
    def done(self) -> float:
        """The share of the work that is done, between 0 and 1."""

    @property
    def looks(self) -> frozenset[int]:
        """Blocks before which it looks at the votes so far; these have to be found again: no stored row spans one."""

    @property
    def step(self) -> int | None:
        """How many draws of an input it wants at a time, where its looks decide that."""


class _Drawn:
    """So many draws of each of the inputs in each phase, from a block on, and which of them are known."""

    looks: frozenset[int] = frozenset()
    step: int | None = None

    def __init__(self, *, inputs: int, draws: Mapping[Phase, int], start: int = 0) -> None:
        self.inputs, self.draws, self._start = inputs, dict(draws), start
        self._drawn = 0
        self._known: dict[tuple[int, Phase], list[range]] = {}

    def tell(self, votes: Votes) -> None:
        self._drawn += votes.draws
        self._known.setdefault((votes.position, votes.phase), []).append(range(votes.first, votes.last))

    def _wanted(self, position: int, phase: Phase, candidate: int = NO_CANDIDATE) -> Iterator[Block]:
        known = self._known.pop((position, phase), [])
        blocks = blocks_of(position, phase, self.draws[phase], self._start, candidate)
        return (b for b in blocks if not any(b.index in r for r in known))

    @property
    def done(self) -> float:
        return self._drawn / (self.inputs * sum(self.draws.values()))


class Fixed(_Drawn):
    """The draws of one input after the other."""

    def __iter__(self) -> Iterator[Block]:
        for position in range(self.inputs):
            for phase in self.draws:
                yield from self._wanted(position, phase)


class SelectFirst(_Drawn):
    """The draws of the first phase of all inputs, then those of the second, whose blocks know their candidate."""

    def __init__(self, *, inputs: int, draws: Mapping[Phase, int]) -> None:
        super().__init__(inputs=inputs, draws=draws)
        self._selecting, self._proving = draws
        self._selected = [0] * inputs
        self._beside: dict[int, Beside] = {}
        self._candidates = [NO_CANDIDATE] * inputs

    def tell(self, votes: Votes) -> None:
        super().tell(votes)
        if votes.phase is not self._selecting or votes.beside is None:
            return
        position, so_far = votes.position, self._beside.pop(votes.position, None)
        beside = votes.beside if so_far is None else votes.beside.join([so_far, votes.beside])
        self._selected[position] += votes.draws
        if self._selected[position] < self.draws[self._selecting]:
            self._beside[position] = beside
        else:
            self._candidates[position] = beside.leader(self._selected[position])

    def __iter__(self) -> Iterator[Block | None]:
        for position in range(self.inputs):
            yield from self._wanted(position, self._selecting)
        for position in range(self.inputs):
            while self._candidates[position] == NO_CANDIDATE:
                yield None
            yield from self._wanted(position, self._proving, self._candidates[position])
