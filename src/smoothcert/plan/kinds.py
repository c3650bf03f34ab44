"""Kinds of votes: what one draw gives to the classes. They decide what the smoothed classifier returns.

Each kind knows how its votes are drawn, which methods bound them and what those bounds prove.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds import METHODS
from smoothcert.bounds.duels import duels
from smoothcert.bounds.method import candidates
from smoothcert.bounds.prediction import ABSTAIN, top_class
from smoothcert.bounds.sequential import SequentialPlan
from smoothcert.bounds.sequential_duels import SequentialDuels, UntilClaimed
from smoothcert.bounds.spending import looks
from smoothcert.checks import check_positive, check_whole
from smoothcert.errors import InputError
from smoothcert.options import keep, option
from smoothcert.plan.adaptive import Adaptive, DuelRule, LabelRule, Rule
from smoothcert.plan.schedules import Fixed, Schedule, SelectFirst
from smoothcert.plan.slopes import Slopes
from smoothcert.plan.tally import Fought, Others, Shares, Tally
from smoothcert.radii.soft import SOFT_METHODS
from smoothcert.sampling.blocks import MOST_SOFT_DRAWS, Beside, Phase, Soft
from smoothcert.sampling.duels import Lost

if TYPE_CHECKING:
    import torch

Floats = NDArray[np.float64]
PROVED, ESTIMATED = "proved", "estimated"
CHOOSING, CHOOSING_SHARE = 10, 20
"""Draws that choose the class of a prediction by duels; where that is close, up to one in so many of max_n."""

FIRST_LOOK, STEP, GROWTH, FUTILITY = 20, 10, 1.1, 0.45
"""When predictions by duels are looked at: first, then at whole steps; and the chance that one is given up although
max_n draws would make it. Chosen among some thirty settings on stored scores of 100 CIFAR-10 images at two σ; what they
cost on others `benchmarks/duels.py` measures."""

SMALLEST = math.ulp(0.0)
"""A radius at which Φ(r/σ) = ½: to claim it is to predict."""


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

    most_draws: ClassVar[int | None] = None
    """How many draws the votes can be added up over, where that is limited."""

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


@dataclass(frozen=True)
class Duels(Kind):
    """A draw is a duel between any two classes, won by the larger score: the class that wins each of its duels more
    often than not, if there is one, is what the smoothed classifier returns."""

    name: ClassVar[str] = "duels"
    methods: ClassVar[Mapping[str, Any]] = {"duels": duels}
    default_method: ClassVar[str] = "duels"
    beside: ClassVar[tuple[str, ...]] = tuple(METHODS)

    @property
    def compared(self) -> tuple[str, ...]:
        return (*self.methods, *self.beside)

    def ballots(self, scores: torch.Tensor) -> torch.Tensor:
        """The scores, in a type that holds those of every precision."""
        return scores.double()

    def count(self, ballots: NDArray[Any], candidate: int) -> Beside | None:
        return Lost.of(ballots, candidate)

    def others(self, inputs: int, num_classes: int) -> Others | None:
        return Fought.zeros(inputs, num_classes)

    def schedule(self, inputs: int, draws: Mapping[Phase, int]) -> Schedule:
        return SelectFirst(inputs=inputs, draws=draws)

    def rule(self, ends: Ends, sigma: float, level: float, num_classes: int) -> Rule:
        return DuelRule(ends.of_duels(sigma, level), num_classes)

    def prove(self, tally: Tally, method: str, level: float, sigma: float, slopes: Slopes | None) -> Proved:
        """`R = σ min_j Φ⁻¹(P_kj)`: Φ⁻¹(P_kj) is 1/σ-Lipschitz, each duel being a classifier of two classes."""
        fought, (n0, n) = tally.duels, tally.draws
        radii = sigma * np.maximum(self.methods[method](fought.lost, n, level), 0.0)
        return Proved(fought.candidates, radii, n0, n)

    def predicting(self, inputs: int, max_n: int, level: float, num_classes: int) -> Schedule:
        """The test of a radius that is hardly one, with a selection of its own."""
        at = (*(n for n in looks(-(-max_n // STEP) * STEP, GROWTH, STEP) if FIRST_LOOK <= n < max_n), max_n)
        test = UntilClaimed(1.0, at, level, FUTILITY, (SMALLEST,))
        phases = Phase.CHOOSE, Phase.PREDICT
        rule = DuelRule(test, num_classes, most_n0=max_n // CHOOSING_SHARE)
        return Adaptive(rule, inputs=inputs, n0=CHOOSING, phases=phases)

    def predict(self, tally: Tally, level: float) -> NDArray[np.int64]:
        return np.array([claim.prediction for claim in tally.claims or []])


@dataclass(frozen=True)
class Labels(Kind):
    """The whole vote of a draw for the class with the largest score, or for the label that the model returns."""

    name: ClassVar[str] = "labels"
    methods: ClassVar[Mapping[str, Any]] = METHODS
    default_method: ClassVar[str] = "pairwise"
    of_scores: ClassVar[bool] = False

    def ballots(self, scores: torch.Tensor) -> torch.Tensor:
        return scores[:, :0]

    def count(self, ballots: NDArray[Any], candidate: int) -> Beside | None:
        return None

    def others(self, inputs: int, num_classes: int) -> Others | None:
        return None

    def schedule(self, inputs: int, draws: Mapping[Phase, int]) -> Schedule:
        return Fixed(inputs=inputs, draws=draws)

    def rule(self, ends: Ends, sigma: float, level: float, num_classes: int) -> Rule:
        return LabelRule(ends.of_labels(sigma, level), num_classes)

    def prove(self, tally: Tally, method: str, level: float, sigma: float, slopes: Slopes | None) -> Proved:
        """The margin t that the method bounds; `σ t / 2` is the radius (Cohen et al., 2019)."""
        bound = self.methods[method](tally.selections, tally.estimations, level)
        radii = sigma * np.maximum(bound.t, 0.0) / 2
        n0, n = tally.draws
        return Proved(candidates(tally.selections), radii, n0, n, num_buckets=bound.num_buckets)

    def predicting(self, inputs: int, max_n: int, level: float, num_classes: int) -> Schedule:
        return Fixed(inputs=inputs, draws={Phase.PREDICT: max_n})

    def predict(self, tally: Tally, level: float) -> NDArray[np.int64]:
        return top_class(tally.estimations, level)


@dataclass(frozen=True)
class _Shares(Kind):
    """A vote divided among the classes: τ(scores / T), a point of the simplex."""

    temperature: float = option(
        1.0, help="What the scores are divided by before softmax or sparsemax.", panel="Soft votes"
    )
    methods: ClassVar[Mapping[str, Any]] = SOFT_METHODS
    default_method: ClassVar[str] = "betting"
    beside: ClassVar[tuple[str, ...]] = tuple(METHODS)
    soft: ClassVar[bool] = True
    most_draws: ClassVar[int | None] = MOST_SOFT_DRAWS
    SELECTING: ClassVar[int] = 100
    """Draws that choose the class of a prediction."""

    def __post_init__(self) -> None:
        keep(self, temperature=check_positive("temperature", self.temperature, "scores are divided by it"))

    def ballots(self, scores: torch.Tensor) -> torch.Tensor:
        """Shares in whole multiples of 1/UNIT."""
        from smoothcert.sampling.simplex import shares

        return shares(self.name, self.temperature, scores)

    def count(self, ballots: NDArray[Any], candidate: int) -> Beside | None:
        return Soft.of(ballots, candidate)

    def others(self, inputs: int, num_classes: int) -> Others | None:
        return Shares.zeros(inputs, num_classes)

    def schedule(self, inputs: int, draws: Mapping[Phase, int]) -> Schedule:
        return SelectFirst(inputs=inputs, draws=draws)

    def rule(self, ends: Ends, sigma: float, level: float, num_classes: int) -> Rule:
        raise InputError("soft votes need a fixed number of draws: leave out `radii` and `width`, or use other votes.")

    def prove(self, tally: Tally, method: str, level: float, sigma: float, slopes: Slopes | None) -> Proved:
        """The radius of one bound for each rival, larger where the shares are known to be Lipschitz."""
        selection, estimation = tally.shares.selection, tally.shares.estimation
        m, c = tally.estimations.shape
        known = np.full((m, c), np.inf) if slopes is None else self.share_slopes(slopes, c)
        radii = self.methods[method](selection, estimation, level, sigma, known)
        largest = None if slopes is None else known.max(axis=1)
        return Proved(selection.candidates, radii, selection.n, estimation.n, lipschitz=largest)

    def predicting(self, inputs: int, max_n: int, level: float, num_classes: int) -> Schedule:
        draws = {Phase.CHOOSE: self.SELECTING, Phase.PREDICT: check_whole("max_n", max_n, 2, self.most_draws)}
        return self.schedule(inputs, draws)

    def predict(self, tally: Tally, level: float) -> NDArray[np.int64]:
        """The class with the largest mean share, where it is proved to lead at all: a radius above 0, whatever σ."""
        known = self.prove(tally, self.default_method, level, 1.0, None)
        return np.where(known.radii > 0, known.top, ABSTAIN)

    def total(self, tally: Tally) -> NDArray[Any]:
        return tally.shares.estimation.totals

    def __str__(self) -> str:
        return f"{self.name} of the scores / {self.temperature:g}"


@dataclass(frozen=True)
class Softmax(_Shares):
    """`F_k = e^{z_k/T} / Σ_j e^{z_j/T}` of the scores z."""

    name: ClassVar[str] = "softmax"

    def slope(self, num_classes: int) -> float:
        """√2/4 / T: `∇p_k = p_k (e_k − p)`, and `‖e_k − p‖² = (1 − p_k)² + Σ_{j≠k} p_j² ≤ 2 (1 − p_k)²`, so that
        `‖∇p_k‖ ≤ √2 p_k (1 − p_k) ≤ √2/4`."""
        return math.sqrt(2) / 4 / self.temperature

    def pair_slope(self, num_classes: int) -> float:
        """1/4 / T: `∇p_k = p_k Σ_j p_j (∇z_k − ∇z_j)`, so that `‖∇p_k‖ ≤ p_k (1 − p_k) max_j K_kj`."""
        return 1 / 4 / self.temperature


@dataclass(frozen=True)
class Sparsemax(_Shares):
    """The point of the simplex nearest to the scores / T (Martins and Astudillo, 2016)."""

    name: ClassVar[str] = "sparsemax"

    def slope(self, num_classes: int) -> float:
        """√(1 − 1/c) / T: it is continuous and piecewise linear; where s scores are in its support its Jacobian there
        is `I − 11ᵀ/s`, whose rows have norm `√((1 − 1/s)² + (s − 1)/s²) = √(1 − 1/s)`, the largest for s = c."""
        return math.sqrt(1 - 1 / num_classes) / self.temperature

    def pair_slope(self, num_classes: int) -> float:
        """(1 − 1/c) / T: `∇p_k` is the mean of `∇z_k − ∇z_j` over the s scores j of the support, one of which is 0."""
        return (1 - 1 / num_classes) / self.temperature


@dataclass(frozen=True)
class Hardmax(_Shares):
    """The whole vote for the largest score, but counted and bounded as shares are."""

    name: ClassVar[str] = "hardmax"


KINDS = (Duels, Labels, Softmax, Sparsemax, Hardmax)


def by_claims(tally: Tally, n0: int) -> Proved:
    """What was claimed when the draws ended: by the rule that ended them, or by an imported log."""
    claims = tally.claims or []
    column = np.array([[c.prediction, c.n] for c in claims], dtype=np.int64).reshape(-1, 2)
    radii = np.array([c.radius for c in claims])
    return Proved(column[:, 0], radii, np.full(len(claims), n0), column[:, 1])
