"""Draws of each input until a rule that looks at its votes says stop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.bounds.sequential import (
    MONO,
    PAIRWISE,
    Decision,
    SequentialPlan,
    choose_test,
    decide,
    looks_of,
    may_claim,
)
from smoothcert.bounds.sequential_duels import SequentialDuels
from smoothcert.bounds.spending import Looks
from smoothcert.sampling.blocks import BLOCK, NO_CANDIDATE, Block, Claim, Phase, Votes
from smoothcert.sampling.duels import Lost

CERTIFYING = (Phase.SELECTION, Phase.ESTIMATION)
CLEAR = 1.5
"""Standard deviations by which a class leads in its worst duel where nobody would ask for more draws to select it."""


class Case(ABC):
    """One undecided input: which class it has been decided to prove, and its votes so far."""

    n0: int
    """The draws that select the class, or that have to be seen before it is known how many."""

    candidate: int = NO_CANDIDATE
    """Known once the selection is complete, where draws need to know it."""

    @abstractmethod
    def select(self, votes: Votes) -> None:
        """Takes further votes of the selection sample."""

    @abstractmethod
    def draw(self, votes: Votes) -> None:
        """Takes further votes of the estimation sample."""

    def chosen(self) -> bool:
        """Do n0 draws select the class? If not, n0 is raised."""
        return True

    @property
    @abstractmethod
    def at(self) -> Looks:
        """The draws at which it looks, known once the selection is complete."""

    @abstractmethod
    def look(self) -> None:
        """Takes note of the votes at a look."""

    @abstractmethod
    def decide(self) -> Decision:
        """What the votes at the looks so far say, or before the first those of the selection."""

    @abstractmethod
    def may_claim(self, radius: float) -> bool:
        """Can this radius have been claimed of the votes at the looks so far? Never False where it was."""

    @property
    @abstractmethod
    def top(self) -> int:
        """The class that is claimed, if one is."""


class Rule(ABC):
    """What ends the draws of an input."""

    @property
    @abstractmethod
    def looks(self) -> Iterable[int]:
        """The draws at which it may look."""

    @abstractmethod
    def case(self, n0: int) -> Case:
        """An input without votes, whose class n0 draws will select."""


@dataclass(frozen=True)
class LabelRule(Rule):
    """Of labels: `bounds.sequential`."""

    plan: SequentialPlan
    num_classes: int

    @property
    def looks(self) -> Iterable[int]:
        return (n for test in (MONO, PAIRWISE) for n in looks_of(self.plan, test))

    def case(self, n0: int) -> Case:
        return _Labels(n0, self)


@dataclass(frozen=True)
class _Numbers:
    """A number for each place, `rest` where none is listed: a file of a few kilobytes may have a million classes and
    dozens of looks."""

    places: NDArray[np.int64]
    values: NDArray[np.int64]
    rest: int = 0

    def plus(self, places: NDArray[np.int64], values: NDArray[np.int64]) -> _Numbers:
        """With values added at some places."""
        together = np.union1d(self.places, places)
        found = self.at(together)
        found[np.searchsorted(together, places)] += values
        return _Numbers(together, found, self.rest)

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of some places in order, with all that are listed among them."""
        found = np.full(len(places), self.rest, dtype=np.int64)
        found[np.searchsorted(places, self.places)] = self.values
        return found


_NOTHING = _Numbers(*np.zeros((2, 0), dtype=np.int64))


def _met(found: Iterable[_Numbers], size: int, spare: int) -> NDArray[np.int64]:
    """The places that are listed, and so many of those that are not, for all of these."""
    met = reduce(np.union1d, (numbers.places for numbers in found))
    others = np.setdiff1d(np.arange(min(size, len(met) + spare)), met)
    return np.union1d(met, others[:spare])


def _columns(rows: Sequence[_Numbers], places: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.array([row.at(places) for row in rows], dtype=np.int64).reshape(len(rows), len(places))


@dataclass
class _Labels(Case):
    n0: int
    rule: LabelRule
    selection: _Numbers = _NOTHING
    drawn: _Numbers = _NOTHING
    at_looks: list[_Numbers] = field(default_factory=list)

    def select(self, votes: Votes) -> None:
        self.selection = self.selection.plus(votes.classes, votes.counts)

    def draw(self, votes: Votes) -> None:
        self.drawn = self.drawn.plus(votes.classes, votes.counts)

    @property
    def at(self) -> Looks:
        return looks_of(self.rule.plan, choose_test(self.rule.plan, self._votes()[0]))

    def look(self) -> None:
        self.at_looks.append(self.drawn)

    def decide(self) -> Decision:
        return decide(self.rule.plan, *self._votes())

    def may_claim(self, radius: float) -> bool:
        return may_claim(self.rule.plan, *self._votes(), radius)

    def _votes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Those of the selection and at the looks; two classes without any are as good as all of them."""
        met = _met([self.selection, self.drawn], self.rule.num_classes, spare=2)
        return self.selection.at(met), _columns(self.at_looks, met)

    @property
    def top(self) -> int:
        return int(self.selection.places[self.selection.values.argmax()])


@dataclass(frozen=True)
class DuelRule(Rule):
    """Of duels: `bounds.sequential_duels`. The selection goes on up to `most_n0` draws while it is close."""

    test: SequentialDuels
    num_classes: int
    most_n0: int = 0

    @property
    def looks(self) -> Iterable[int]:
        return self.test.at

    def case(self, n0: int) -> Case:
        return _Duels(n0, self)


@dataclass
class _Duels(Case):
    n0: int
    rule: DuelRule
    selection: list[Lost] = field(default_factory=list)
    drawn: list[Lost] = field(default_factory=list)
    at_looks: list[_Numbers] = field(default_factory=list)

    def select(self, votes: Votes) -> None:
        assert isinstance(votes.beside, Lost)
        self.selection.append(votes.beside)

    def draw(self, votes: Votes) -> None:
        assert isinstance(votes.beside, Lost)
        self.drawn.append(votes.beside)

    def chosen(self) -> bool:
        self.selection = [Lost.join(self.selection)]
        self.candidate = self.selection[0].leader(self.n0)
        selected = self._lost(self.selection[0], self.n0)
        lead = self.n0 - 2 * selected.at(self._rivals([selected])).max()
        clear: bool = lead >= CLEAR * self.n0**0.5
        if not clear and self.n0 < self.rule.most_n0:
            self.n0 = min(2 * self.n0, self.rule.most_n0)
            self.candidate = NO_CANDIDATE
            return False
        return True

    @property
    def at(self) -> Looks:
        return self.rule.test.at

    def look(self) -> None:
        self.drawn = [Lost.join(self.drawn)]
        self.at_looks.append(self._lost(self.drawn[0], self.at[len(self.at_looks)]))

    def decide(self) -> Decision:
        selected = self._lost(self.selection[0], self.n0)
        met = self._rivals([selected, *self.at_looks])
        return self.rule.test.decide(self.n0, selected.at(met), _columns(self.at_looks, met))

    def may_claim(self, radius: float) -> bool:
        return self.rule.test.may_claim(_columns(self.at_looks, self._rivals([_NOTHING, *self.at_looks])), radius)

    def _rivals(self, found: Iterable[_Numbers]) -> NDArray[np.int64]:
        """Those that are listed, and one of the others, if there is one."""
        return _met(found, self.rule.num_classes - 1, spare=1)

    def _lost(self, duels: Lost, draws: int) -> _Numbers:
        """The duels that the candidate lost to each rival; rivals are numbered without it."""
        rivals, counts, rest = duels.against(self.candidate, draws)
        return _Numbers(rivals - (rivals > self.candidate), counts, rest)

    @property
    def top(self) -> int:
        return self.candidate


def bears(rule: Rule, n0: int, claim: Claim, votes: Sequence[Votes]) -> bool:
    """Can the rule have made this claim of all votes of the input, which are in order?

    They end at a look, none is passed over, and the radius is within reach of the class that the selection chose.
    """
    case, samples = rule.case(n0), [[v for v in votes if v.phase is phase] for phase in CERTIFYING]
    if sum(v.draws for v in samples[0]) != n0:
        return False
    for part in samples[0]:
        case.select(part)
    if not case.chosen():
        return False
    reached = list(accumulate(v.draws for v in samples[1]))
    looks = set(case.at[: bisect_right(case.at, claim.n)])
    if max(looks, default=0) != claim.n or max(reached, default=0) != claim.n or not looks <= set(reached):
        return False
    if claim.prediction == ABSTAIN:
        return True
    for part, n in zip(samples[1], reached, strict=True):
        case.draw(part)
        if n in looks:
            case.look()
    return claim.prediction == case.top and case.may_claim(claim.radius)


@dataclass
class _Progress:
    """How far an undecided input is: draws and blocks of the present phase, and what the last look said."""

    case: Case
    draws: int = 0
    blocks: int = 0
    decision: Decision | None = None
    begun: bool = False


class Adaptive:
    """Draws of each input up to its next look, until the rule says stop.

    Whenever it has to wait for votes it begins another input instead, so that batches are full until the last few
    inputs. Inputs in `decided` are left alone. Blocks of an input are told in their order.
    """

    def __init__(
        self,
        rule: Rule,
        *,
        inputs: int,
        n0: int,
        decided: Iterable[int] = (),
        phases: tuple[Phase, Phase] = CERTIFYING,
    ) -> None:
        self.rule, self.inputs, self.n0 = rule, inputs, n0
        self._selecting, self._proving = phases
        self.looks = frozenset(n // BLOCK for n in rule.looks)
        self.step: int | None = min(rule.looks)
        self._decided = set(decided)
        self._undecided: dict[int, _Progress] = {}
        self._queue: deque[Block] = deque()

    def tell(self, votes: Votes) -> Claim | None:
        if votes.position in self._decided:
            return None
        progress = self._progress_of(votes.position)
        (progress.case.select if votes.phase is self._selecting else progress.case.draw)(votes)
        progress.draws, progress.blocks = progress.draws + votes.draws, votes.last
        if progress.draws < self._wanted(progress):
            return None
        if progress.decision is not None:
            progress.case.look()
            progress.decision = progress.case.decide()
        elif progress.case.chosen():
            progress.decision = progress.case.decide()
            progress.draws = progress.blocks = 0
        if progress.decision and progress.decision.stop:
            return self._claim(votes.position, progress.case, progress.decision)
        if progress.begun:
            self._ask(votes.position, progress)
        return None

    def _claim(self, position: int, case: Case, decision: Decision) -> Claim:
        self._decided.add(position)
        del self._undecided[position]
        return Claim(position, case.top if decision.radius > 0 else ABSTAIN, decision.radius, decision.next_n)

    def __iter__(self) -> Iterator[Block | None]:
        ahead = iter(range(self.inputs))
        while True:
            if self._queue:
                yield self._queue.popleft()
            elif (position := next((p for p in ahead if p not in self._decided), None)) is not None:
                progress = self._progress_of(position)
                progress.begun = True
                self._ask(position, progress)
            elif self._undecided:
                yield None
            else:
                return

    def _progress_of(self, position: int) -> _Progress:
        if position not in self._undecided:
            self._undecided[position] = _Progress(self.rule.case(self.n0))
        return self._undecided[position]

    def _wanted(self, progress: _Progress) -> int:
        """The draws of the present phase up to the next look."""
        return progress.decision.next_n if progress.decision else progress.case.n0

    def _ask(self, position: int, progress: _Progress) -> None:
        """Queues the blocks that lead to the next look."""
        phase, wanted = self._proving if progress.decision else self._selecting, self._wanted(progress)
        starts = enumerate(range(progress.draws, wanted, BLOCK), start=progress.blocks)
        for index, start in starts:
            self._queue.append(Block(position, phase, index, min(BLOCK, wanted - start), progress.case.candidate))

    @property
    def done(self) -> float:
        return len(self._decided) / self.inputs
