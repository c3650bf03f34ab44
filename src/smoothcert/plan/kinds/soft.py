"""Soft votes: parts of a vote, whose means are bounded after a fixed number of draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds import METHODS
from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.checks import check_whole
from smoothcert.errors import InputError
from smoothcert.plan.adaptive import Rule
from smoothcert.plan.kinds.base import Ends, Kind
from smoothcert.plan.schedules import Schedule, SelectFirst
from smoothcert.plan.tally import Tally
from smoothcert.sampling.blocks import Phase


@dataclass(frozen=True)
class Soft(Kind):
    """What soft votes have in common."""

    beside: ClassVar[tuple[str, ...]] = tuple(METHODS)
    soft: ClassVar[bool] = True
    SELECTING: ClassVar[int] = 100
    """Draws that choose the class of a prediction."""

    def schedule(self, inputs: int, draws: Mapping[Phase, int]) -> Schedule:
        return SelectFirst(inputs=inputs, draws=draws)

    def rule(self, ends: Ends, sigma: float, level: float, num_classes: int) -> Rule:
        raise InputError("soft votes need a fixed number of draws: leave out `radii` and `width`, or use other votes.")

    def predicting(self, inputs: int, max_n: int, level: float, num_classes: int) -> Schedule:
        draws = {Phase.CHOOSE: self.SELECTING, Phase.PREDICT: check_whole("max_n", max_n, 2, self.most_draws)}
        return self.schedule(inputs, draws)

    def predict(self, tally: Tally, level: float) -> NDArray[np.int64]:
        """The class that is proved to lead at all: a radius above 0, whatever σ."""
        known = self.prove(tally, self.default_method, level, 1.0, None)
        return np.where(known.radii > 0, known.top, ABSTAIN)
