"""Duels: the kind of votes that scores have unless told otherwise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds import METHODS
from smoothcert.bounds.duels import duels
from smoothcert.bounds.sequential_duels import UntilClaimed
from smoothcert.bounds.spending import looks
from smoothcert.plan.adaptive import Adaptive, DuelRule, Rule
from smoothcert.plan.kinds.base import Ends, Kind, Proved
from smoothcert.plan.schedules import Schedule, SelectFirst
from smoothcert.plan.slopes import Slopes
from smoothcert.plan.tally import Fought, Others, Tally
from smoothcert.sampling.blocks import Beside, Phase
from smoothcert.sampling.duels import Lost

if TYPE_CHECKING:
    import torch

CHOOSING, CHOOSING_SHARE = 10, 20
"""Draws that choose the class of a prediction by duels; where that is close, up to one in so many of max_n."""

FIRST_LOOK, STEP, GROWTH, FUTILITY = 20, 10, 1.1, 0.45
"""When predictions by duels are looked at: first, then at whole steps; and the chance that one is given up although
max_n draws would make it. Chosen among some thirty settings on stored scores of 100 CIFAR-10 images at two σ; what they
cost on others `benchmarks/duels.py` measures."""

SMALLEST = math.ulp(0.0)
"""A radius at which Φ(r/σ) = ½: to claim it is to predict."""


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
