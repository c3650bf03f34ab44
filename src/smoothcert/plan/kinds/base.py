"""What every kind of votes answers: how its votes are drawn, which methods bound them and what those bounds prove."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.sequential import SequentialPlan
from smoothcert.bounds.sequential_duels import SequentialDuels
from smoothcert.plan.adaptive import Rule
from smoothcert.plan.schedules import Schedule
from smoothcert.plan.slopes import Slopes
from smoothcert.plan.tally import Others, Tally
from smoothcert.sampling.blocks import Beside, Phase

if TYPE_CHECKING:
    import torch

Floats = NDArray[np.float64]
PROVED, ESTIMATED = "proved", "estimated"


@dataclass(frozen=True)
class Proved:
    """What is known of each input: its class, the radius around it (0 proves nothing), and what both rest on."""

    top: NDArray[np.int64]
    radii: Floats
    n0: NDArray[np.int64]
    n: NDArray[np.int64]
    num_buckets: NDArray[np.int64] | None = None
    lipschitz: Floats | None = None


class Ends(Protocol):
    """A kind of draws that votes end, as a rule for either kind of votes."""

    def of_labels(self, sigma: float, level: float) -> SequentialPlan: ...

    def of_duels(self, sigma: float, level: float) -> SequentialDuels: ...


class Kind(ABC):
    """What every kind of votes answers."""

    name: ClassVar[str]
    methods: ClassVar[Mapping[str, Any]]
    default_method: ClassVar[str]
    beside: ClassVar[tuple[str, ...]] = ()
    """Methods of another classifier, that of the labels, whose votes are kept beside these."""

    @property
    def compared(self) -> tuple[str, ...]:
        """Methods that tables show side by side unless told otherwise."""
        return tuple(self.methods)

    soft: ClassVar[bool] = False
    """Is a vote divided into shares?"""

    of_scores: ClassVar[bool] = True
    """Does it take scores to vote?"""

    jumps: ClassVar[bool] = True
    """Does a vote jump as the scores change, so that no Lipschitz constant says anything about it?"""

    most_draws: ClassVar[int | None] = None
    """How many draws the votes can be added up over, where that is limited."""

    @property
    def is_open(self) -> bool:
        """Is anything of it to be chosen before the first draw?"""
        return False

    @abstractmethod
    def ballots(self, scores: torch.Tensor) -> torch.Tensor:
        """What is counted of each row of scores (N, c) beside its label, without columns if nothing is."""

    @abstractmethod
    def count(self, ballots: NDArray[Any], candidate: int) -> Beside | None:
        """What the ballots of consecutive blocks add up to."""

    @abstractmethod
    def others(self, inputs: int, num_classes: int) -> Others | None:
        """Room for what is added up beside the label counts."""

    def slope(self, num_classes: int) -> float:
        """The ℓ2 constant of one class's share as a function of the scores; infinite where votes jump."""
        return math.inf

    def pair_slope(self, num_classes: int) -> float:
        """The constant of class k's share per largest constant of `f_k − f_j` over j; infinite where votes jump."""
        return math.inf

    @property
    def shares(self) -> Callable[[torch.Tensor], torch.Tensor] | None:
        """The shares of a vote as a map of scores (N, c) that gradients pass; None where votes are not divided."""
        return None

    def share_slopes(self, slopes: Slopes, num_classes: int) -> Floats:
        """The ℓ2 constant of each class's share as a function of the input, (m, c)."""
        if slopes.of_shares:
            return np.repeat(slopes.scores[:, None], num_classes, axis=1)
        by_pairs = self.pair_slope(num_classes) * slopes.widest(num_classes)
        return np.minimum(self.slope(num_classes) * slopes.scores[:, None], by_pairs)

    @abstractmethod
    def schedule(self, inputs: int, draws: Mapping[Phase, int]) -> Schedule:
        """So many draws of each input in two phases, the first of which selects the class."""

    @abstractmethod
    def rule(self, ends: Ends, sigma: float, level: float, num_classes: int) -> Rule:
        """The rule that ends the draws of an input where its votes do."""

    @abstractmethod
    def prove(self, tally: Tally, method: str, level: float, sigma: float, slopes: Slopes | None) -> Proved:
        """What the method proves at this level; `slopes` say how steep the scores are, where that is known."""

    @abstractmethod
    def predicting(self, inputs: int, max_n: int, level: float, num_classes: int) -> Schedule:
        """The draws behind predictions, at most max_n that decide."""

    @abstractmethod
    def predict(self, tally: Tally, level: float) -> NDArray[np.int64]:
        """The smoothed classifier's class of each input or ABSTAIN, wrong with probability at most the level."""

    def total(self, tally: Tally) -> NDArray[Any]:
        """The votes of the estimation draws, by class (m, c)."""
        return tally.estimations

    def __str__(self) -> str:
        return self.name


def by_claims(tally: Tally, n0: int) -> Proved:
    """What was claimed when the draws ended: by the rule that ended them, or by an imported log."""
    claims = tally.claims or []
    column = np.array([[c.prediction, c.n] for c in claims], dtype=np.int64).reshape(-1, 2)
    radii = np.array([c.radius for c in claims])
    return Proved(column[:, 0], radii, np.full(len(claims), n0), column[:, 1])
