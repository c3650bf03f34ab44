"""Labels: the kind of votes that needs no scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds import METHODS
from smoothcert.bounds.method import candidates
from smoothcert.bounds.prediction import top_class
from smoothcert.plan.adaptive import LabelRule, Rule
from smoothcert.plan.kinds.base import Ends, Kind, Proved
from smoothcert.plan.schedules import Fixed, Schedule
from smoothcert.plan.slopes import Slopes
from smoothcert.plan.tally import Others, Tally
from smoothcert.sampling.blocks import Beside, Phase

if TYPE_CHECKING:
    import torch


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
