"""Schedules: which blocks are wanted next, told of the votes as they come.

A schedule is iterated for blocks, and told of votes in between. It yields None when it wants to know the votes of the
blocks so far before it goes on. Votes of an earlier session are told first, and their blocks are not asked for again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.bounds.sequential import MONO, PAIRWISE, Decision, SequentialPlan, decide, looks_of
from smoothcert.checks import check_level, check_number, check_sigma, check_whole
from smoothcert.errors import InputError
from smoothcert.sampling.blocks import BLOCK, NO_CANDIDATE, Block, Claim, Phase, Votes, blocks_of


def sequential_plan(
    sigma: float,
    alpha: float,
    radii: Sequence[float] | None,
    width: float | None,
    max_n: int,
    futility: float,
) -> SequentialPlan | None:
    """What the caller asks of every input, or None where neither radii nor a width are given."""
    sigma, alpha = check_sigma(sigma), check_level(alpha)
    if radii is None and width is None:
        return None
    if radii is not None and (isinstance(radii, str) or np.ndim(radii) != 1):
        raise InputError(f"radii must be a list of numbers, got {radii!r}.")
    return SequentialPlan(
        sigma,
        () if radii is None else tuple(check_number("a radius", r) for r in radii),
        None if width is None else check_number("width", width),
        alpha,
        check_whole("max_n", max_n, 1),
        check_number("futility", futility),
    )


class Schedule(Protocol):
    """What the sampling loop asks of a schedule."""

    def __iter__(self) -> Iterator[Block | None]: ...

    def tell(self, votes: Votes) -> Claim | None:
        """Takes note of votes; returns the claim of an input that needs no more."""

    @property
    def done(self) -> float:
        """The share of the work that is done, between 0 and 1."""


class _Drawn:
    """n0 selection draws and n estimation draws of each of the inputs, and which of them are known."""

    def __init__(self, *, inputs: int, n0: int, n: int) -> None:
        self.inputs, self.draws = inputs, {Phase.SELECTION: n0, Phase.ESTIMATION: n}
        self._drawn = 0
        self._known: dict[tuple[int, Phase], list[range]] = {}

    def tell(self, votes: Votes) -> None:
        self._drawn += votes.draws
        self._known.setdefault((votes.position, votes.phase), []).append(range(votes.first, votes.last))

    def _wanted(self, position: int, phase: Phase, candidate: int = NO_CANDIDATE) -> Iterator[Block]:
        known = self._known.pop((position, phase), [])
        blocks = blocks_of(position, phase, self.draws[phase], candidate=candidate)
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
    """The selection draws of all inputs, then the estimation draws, whose blocks know their candidate.

    The candidate has the largest sum of shares in the selection sample, the lowest id among equal ones.
    """

    def __init__(self, *, inputs: int, n0: int, n: int, num_classes: int) -> None:
        super().__init__(inputs=inputs, n0=n0, n=n)
        self._sums = np.zeros((inputs, num_classes), dtype=np.int64)
        self._selected = np.zeros(inputs, dtype=np.int64)

    def tell(self, votes: Votes) -> None:
        super().tell(votes)
        if votes.phase is Phase.SELECTION and votes.soft is not None:
            self._sums[votes.position] += votes.soft.sums
            self._selected[votes.position] += votes.draws

    def __iter__(self) -> Iterator[Block | None]:
        for position in range(self.inputs):
            yield from self._wanted(position, Phase.SELECTION)
        for position in range(self.inputs):
            while self._selected[position] < self.draws[Phase.SELECTION]:
                yield None
            yield from self._wanted(position, Phase.ESTIMATION, int(self._sums[position].argmax()))


@dataclass
class _Case:
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
        self._cases: dict[int, _Case] = {}
        self._queue: deque[Block] = deque()

    def tell(self, votes: Votes) -> Claim | None:
        if votes.position in self._decided:
            return None
        case = self._case(votes.position)
        counts = case.selection if votes.phase is Phase.SELECTION else case.drawn
        counts[votes.classes] += votes.counts
        if case.selection.sum() < self.n0 or (case.decision and case.drawn.sum() < case.decision.next_n):
            return None
        if case.decision:
            case.at_looks.append(case.drawn.copy())
        case.decision = decide(self.plan, case.selection, case.at_looks)
        if case.decision.stop:
            self._decided.add(votes.position)
            del self._cases[votes.position]
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
                case = self._case(position)
                case.begun = True
                self._ask(position, case)
            elif self._cases:
                yield None
            else:
                return

    def _case(self, position: int) -> _Case:
        if position not in self._cases:
            self._cases[position] = _Case(*np.zeros((2, self.num_classes), dtype=np.int64))
        return self._cases[position]

    def _ask(self, position: int, case: _Case) -> None:
        """Queues the blocks that lead to the next look."""
        phase, counts = (Phase.ESTIMATION, case.drawn) if case.decision else (Phase.SELECTION, case.selection)
        draws = case.decision.next_n if case.decision else self.n0
        self._queue.extend(blocks_of(position, phase, draws, start=int(counts.sum()) // BLOCK))

    @property
    def done(self) -> float:
        return len(self._decided) / self.inputs
