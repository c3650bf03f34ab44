"""Schedules: which blocks are wanted next, told of the votes as they come.

A schedule is iterated for blocks, and told of votes in between. It yields None when it wants to know the votes of the
blocks so far before it goes on. Votes of an earlier session are told first, and their blocks are not asked for again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.bounds.sequential import MONO, PAIRWISE, Decision, SequentialPlan, decide, looks_of
from smoothcert.sampling.blocks import BLOCK, NO_CANDIDATE, Block, Claim, Phase, Votes, blocks_of


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


class _Drawn:
    """So many draws of each of the inputs in each phase, from a block on, and which of them are known."""

    looks: frozenset[int] = frozenset()

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
    """The draws of the first phase of all inputs, then those of the second, whose blocks know their candidate.

    The candidate has the largest sum of shares in the first phase, the lowest id among equal ones.
    """

    def __init__(self, *, inputs: int, draws: Mapping[Phase, int], num_classes: int) -> None:
        super().__init__(inputs=inputs, draws=draws)
        self._selecting, self._proving = draws
        self._sums = np.zeros((inputs, num_classes), dtype=np.int64)
        self._selected = np.zeros(inputs, dtype=np.int64)

    def tell(self, votes: Votes) -> None:
        super().tell(votes)
        if votes.phase is self._selecting and votes.soft is not None:
            self._sums[votes.position] += votes.soft.sums
            self._selected[votes.position] += votes.draws

    def __iter__(self) -> Iterator[Block | None]:
        for position in range(self.inputs):
            yield from self._wanted(position, self._selecting)
        for position in range(self.inputs):
            while self._selected[position] < self.draws[self._selecting]:
                yield None
            yield from self._wanted(position, self._proving, int(self._sums[position].argmax()))


@dataclass
class _Undecided:
    """One undecided input: its votes so far, and those at each look that was reached."""

    selection: NDArray[np.int64]
    drawn: NDArray[np.int64]
    at_looks: list[NDArray[np.int64]] = field(default_factory=list)
    decision: Decision | None = None
    begun: bool = False


class Adaptive:
    """Draws of each input up to its next look, until `bounds.sequential.decide` says stop.

    Whenever it has to wait for votes it begins another input instead, so that batches are full until the last few
    inputs. Inputs in `decided` are left alone. Blocks of an input are told in their order.
    """

    def __init__(
        self, plan: SequentialPlan, *, inputs: int, n0: int, num_classes: int, decided: Iterable[int] = ()
    ) -> None:
        self.plan, self.inputs, self.n0, self.num_classes = plan, inputs, n0, num_classes
        self.looks = frozenset(n // BLOCK for test in (MONO, PAIRWISE) for n in looks_of(plan, test))
        self._decided = set(decided)
        self._undecided: dict[int, _Undecided] = {}
        self._queue: deque[Block] = deque()

    def tell(self, votes: Votes) -> Claim | None:
        if votes.position in self._decided:
            return None
        case = self._votes_of(votes.position)
        counts = case.selection if votes.phase is Phase.SELECTION else case.drawn
        counts[votes.classes] += votes.counts
        if case.selection.sum() < self.n0 or (case.decision and case.drawn.sum() < case.decision.next_n):
            return None
        if case.decision:
            case.at_looks.append(case.drawn.copy())
        case.decision = decide(self.plan, case.selection, case.at_looks)
        if case.decision.stop:
            self._decided.add(votes.position)
            del self._undecided[votes.position]
            prediction = int(case.selection.argmax()) if case.decision.radius > 0 else ABSTAIN
            return Claim(votes.position, prediction, case.decision.radius, case.decision.next_n)
        if case.begun:
            self._ask(votes.position, case)
        return None

    def __iter__(self) -> Iterator[Block | None]:
        ahead = iter(range(self.inputs))
        while True:
            if self._queue:
                yield self._queue.popleft()
            elif (position := next((p for p in ahead if p not in self._decided), None)) is not None:
                case = self._votes_of(position)
                case.begun = True
                self._ask(position, case)
            elif self._undecided:
                yield None
            else:
                return

    def _votes_of(self, position: int) -> _Undecided:
        if position not in self._undecided:
            self._undecided[position] = _Undecided(*np.zeros((2, self.num_classes), dtype=np.int64))
        return self._undecided[position]

    def _ask(self, position: int, case: _Undecided) -> None:
        """Queues the blocks that lead to the next look."""
        phase, counts = (Phase.ESTIMATION, case.drawn) if case.decision else (Phase.SELECTION, case.selection)
        draws = case.decision.next_n if case.decision else self.n0
        self._queue.extend(blocks_of(position, phase, draws, start=int(counts.sum()) // BLOCK))

    @property
    def done(self) -> float:
        return len(self._decided) / self.inputs
