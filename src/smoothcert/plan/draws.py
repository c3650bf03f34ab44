"""How long to draw: a fixed number of times, until radii are decided, or until more draws would change little."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from smoothcert.bounds.sequential import BOUND_GROWTH, EXACT_GROWTH, SequentialPlan
from smoothcert.bounds.sequential_duels import SequentialDuels, UntilClaimed, UntilNarrow
from smoothcert.bounds.spending import looks
from smoothcert.checks import MOST_DRAWS, check_number, check_whole
from smoothcert.errors import InputError
from smoothcert.options import keep, option
from smoothcert.plan.adaptive import Adaptive, Rule
from smoothcert.plan.schedules import Schedule
from smoothcert.sampling.blocks import Phase

if TYPE_CHECKING:
    from smoothcert.plan.classifier import Classifier

ADAPTIVE = "adaptive"
PANEL = "Adaptive sampling"
SAVES, TYPICAL = 20, 1_500
"""To estimate the time of a run: how many times fewer draws than max_n an input takes on average where a width decides,
and how many it takes where radii do (docs/adaptive.md)."""


def numbers(text: str) -> tuple[float, ...]:
    """Numbers separated by commas."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{text!r} is no list of numbers such as 0.25,0.5: separate them by commas.") from None


@dataclass(frozen=True)
class FixedN:
    """n draws prove the radius by one method."""

    n: int = option(10_000, help="Draws that prove the radius.")
    method: str | None = option(
        None,
        help="Confidence method, declared before the first draw: duels for duels, pairwise for labels, ramps for "
        "margins, betting for shares.",
    )
    name: ClassVar[str] = "fixed"
    final: ClassVar[str] = ""
    """Why its radii cannot be computed again by another method or at another level, where they cannot."""

    def __post_init__(self) -> None:
        keep(self, n=check_whole("n", self.n, 1, MOST_DRAWS))

    @property
    def most(self) -> int:
        return self.n

    @property
    def expected(self) -> int:
        return self.n

    def schedule(
        self, classifier: Classifier, n0: int, level: float, inputs: int, decided: Iterable[int] = ()
    ) -> Schedule:
        draws = {Phase.SELECTION: n0, Phase.ESTIMATION: self.n}
        return classifier.votes.schedule(inputs, draws)


@dataclass(frozen=True, kw_only=True)
class _Sequential(ABC):
    """Draws that end when the votes say so (`bounds.sequential`)."""

    max_n: int = option(100_000, help="Most draws an input.", panel=PANEL)
    futility: float = option(
        0.05,
        help="Chance of giving up an input that max-n draws would certify; never a false claim.",
        panel=PANEL,
    )
    method: ClassVar[str] = ADAPTIVE
    final: ClassVar[str] = (
        "stopped drawing when its votes said so: neither a bound for a fixed number of draws nor another alpha is "
        "valid on them"
    )

    def __post_init__(self) -> None:
        self.of_labels(1.0, 0.5)
        keep(self, max_n=int(self.max_n), futility=float(self.futility))

    @abstractmethod
    def of_labels(self, sigma: float, level: float) -> SequentialPlan:
        """The test that ends the draws of label votes; it checks what it is made of."""

    @abstractmethod
    def of_duels(self, sigma: float, level: float) -> SequentialDuels:
        """The test that ends the draws of duels."""

    @property
    def most(self) -> int:
        return self.max_n

    @property
    def expected(self) -> int:
        return self.max_n // SAVES

    def schedule(
        self, classifier: Classifier, n0: int, level: float, inputs: int, decided: Iterable[int] = ()
    ) -> Schedule:
        return Adaptive(self.rule(classifier, level), inputs=inputs, n0=n0, decided=decided)

    def rule(self, classifier: Classifier, level: float) -> Rule:
        """What ends the draws of an input."""
        return classifier.votes.rule(self, classifier.sigma, level, classifier.num_classes)


@dataclass(frozen=True, kw_only=True)
class UntilRadii(_Sequential):
    """Draws until each of the radii is claimed or out of reach; the certified radius is the largest one claimed."""

    radii: tuple[float, ...] = option(
        help="Radii to test, as 0.25,0.5: draw only until they are decided.", panel=PANEL, parse=numbers
    )
    name: ClassVar[str] = "until-radii"

    def __post_init__(self) -> None:
        if isinstance(self.radii, str) or not np.iterable(self.radii):
            raise InputError(f"radii must be a list of numbers, got {self.radii!r}.")
        keep(self, radii=tuple(check_number("a radius", r) for r in self.radii))
        super().__post_init__()

    @property
    def expected(self) -> int:
        return min(TYPICAL, self.max_n)

    def of_labels(self, sigma: float, level: float) -> SequentialPlan:
        return SequentialPlan(sigma, self.radii, None, level, self.max_n, self.futility)

    def of_duels(self, sigma: float, level: float) -> SequentialDuels:
        return UntilClaimed(sigma, looks(self.max_n, EXACT_GROWTH), level, self.futility, self.radii)


@dataclass(frozen=True, kw_only=True)
class UntilWidth(_Sequential):
    """Draws until the radius is within this share of what max_n draws would prove."""

    width: float = option(
        help="Draw until the radius is within this share of what max-n draws would prove.",
        panel=PANEL,
        flag="until-width",
    )
    name: ClassVar[str] = "until-width"

    def __post_init__(self) -> None:
        keep(self, width=check_number("width", self.width))
        super().__post_init__()

    def of_labels(self, sigma: float, level: float) -> SequentialPlan:
        return SequentialPlan(sigma, (), self.width, level, self.max_n, self.futility)

    def of_duels(self, sigma: float, level: float) -> SequentialDuels:
        return UntilNarrow(sigma, looks(self.max_n, BOUND_GROWTH), level, self.futility, self.width)


@dataclass(frozen=True)
class NoDraws:
    """None: the scores without noise, and how steep they can be, prove the radius."""

    name: ClassVar[str] = "none"
    method: ClassVar[str] = "margins"
    final: ClassVar[str] = "was certified without noise and has no votes"
    most: ClassVar[int] = 0
    expected: ClassVar[int] = 0

    def schedule(
        self, classifier: Classifier, n0: int, level: float, inputs: int, decided: Iterable[int] = ()
    ) -> Schedule:
        raise InputError("without noise nothing is drawn: use LipschitzClassifier.")
