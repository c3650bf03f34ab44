"""Margins: votes between duels, which jump, and the scores without noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.ramps import expected
from smoothcert.checks import MOST_DRAWS, check_number
from smoothcert.errors import InputError
from smoothcert.options import AUTO, keep, number_or_name, option
from smoothcert.plan.kinds.base import Floats, Proved
from smoothcert.plan.kinds.soft import Soft
from smoothcert.plan.slopes import Slopes
from smoothcert.plan.tally import Others, Ramps, Tally
from smoothcert.radii.ramps import LeastRadii, promised, ramp_radius
from smoothcert.sampling.blocks import UNIT, Beside
from smoothcert.sampling.margins import Spread, leader

if TYPE_CHECKING:
    import torch

LEAST, MOST = 1e-30, 1e30
"""Widths that float32 scores can differ by."""

AT_ONCE = 1 << 12
"""Pairs of classes that are looked at together."""

HARDEST = 3
"""Rivals by whom a radius is predicted."""


@dataclass(frozen=True)
class Margins(Soft):
    """In the duel of k with j a draw gives k the vote `clip(½ + (f_k − f_j) / 2w, 0, 1)`, w the width: the class whose
    mean vote is above ½ against every rival is what the smoothed classifier returns.

    The width is in units of the scores; a run on a data set chooses it (`auto`) before its plan is written.
    """

    width: float | str = option(
        AUTO,
        help="Margin at which a margin vote is whole, in units of the scores; auto chooses it on selection draws.",
        panel="Soft votes",
        parse=number_or_name,
    )
    name: ClassVar[str] = "margins"
    methods: ClassVar[Mapping[str, Any]] = {"ramps": LeastRadii.of}
    default_method: ClassVar[str] = "ramps"
    most_draws: ClassVar[int | None] = MOST_DRAWS
    jumps: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.width != AUTO:
            width = check_number("width", self.width)
            if not LEAST <= width <= MOST:
                raise InputError(f"the width of margin votes lies between {LEAST:g} and {MOST:g}, got {width!r}.")
            keep(self, width=width)

    @property
    def is_open(self) -> bool:
        return self.width == AUTO

    @property
    def known_width(self) -> float:
        if isinstance(self.width, str):
            raise InputError(
                "only a run on a data set chooses the width of margin votes itself: give it as a number here."
            )
        return self.width

    def ballots(self, scores: torch.Tensor) -> torch.Tensor:
        """The scores, in a type that holds those of every precision."""
        return scores.double()

    def count(self, ballots: NDArray[Any], candidate: int) -> Beside | None:
        return Spread.of(ballots, self.known_width, candidate)

    def others(self, inputs: int, num_classes: int) -> Others | None:
        return Ramps.zeros(inputs, num_classes)

    def slope(self, num_classes: int) -> float:
        """√2 / 2w: `|z_k − z_j| ≤ √2 ‖z‖`."""
        return math.sqrt(2) * self.pair_slope(num_classes)

    def pair_slope(self, num_classes: int) -> float:
        """1 / 2w: a vote is as steep as its margin over 2w."""
        return 1 / (2 * self.known_width)

    def prove(self, tally: Tally, method: str, level: float, sigma: float, slopes: Slopes | None) -> Proved:
        """The least radius over all rivals, each from one bound on its mean vote at the full level."""
        m, c = tally.estimations.shape
        top, (n0, n) = tally.ramps.candidates, tally.draws
        known = np.full((m, c), np.inf) if slopes is None else self._against(slopes, top, c)
        least = self.methods[method](m, sigma, level)
        inputs, rivals, constants = _pairs(tally.ramps, top, known)
        for start in range(0, len(inputs), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            those, against = inputs[part], rivals[part]
            votes = [tally.ramps.votes(i, int(top[i]), against[those == i]) for i in np.unique(those)]
            least.meet(those, *np.concatenate(votes, axis=1), constants[part])
        largest = None if slopes is None else known.max(axis=1)
        return Proved(top, np.maximum(least.radii, 0.0), n0, n, lipschitz=largest)

    def total(self, tally: Tally) -> NDArray[Any]:
        """Of each class the votes in its hardest duel, in the blocks in which it won a draw."""
        totals = np.zeros(tally.estimations.shape)
        for i in range(len(totals)):
            classes, hardest = tally.ramps.sample(i, 1).hardest()
            totals[i, classes] = hardest / UNIT
        return totals

    def promised(self, seen: Sequence[Floats], n: int, level: float, sigma: float, slopes: Slopes | None) -> Floats:
        """The radius of each input if n draws were like those of which its scores (draws, c) were seen, against the few
        rivals that are hardest by their mean votes. It promises, and proves nothing."""
        pairs = [self._hardest(scores, sigma, slopes) for scores in seen]
        votes, constants = (np.stack(column) for column in zip(*pairs, strict=True))
        radii = ramp_radius(expected(votes, n, level), sigma, constants)
        return np.asarray(np.maximum(radii.min(axis=1), 0.0))

    def _hardest(self, scores: Floats, sigma: float, slopes: Slopes | None) -> tuple[Floats, Floats]:
        """The votes of the leading class against its hardest rivals, (rivals, points), and their constants."""
        draws, c = scores.shape
        k = leader(scores, self.known_width)
        votes = Spread.of(scores, self.known_width, k).of_class(k, draws, np.arange(c))
        known = np.full(c, np.inf) if slopes is None else self._against(slopes, np.array([k]), c)[0]
        easy = promised(votes, sigma, known)
        easy[k] = np.inf
        few = np.argsort(easy, kind="stable")[: min(HARDEST, c - 1)]
        return votes[few], known[few]

    def _against(self, slopes: Slopes, top: NDArray[np.int64], num_classes: int) -> Floats:
        """The constants (m, c) of the votes of each input's class against every rival, rounded up."""
        if slopes.of_shares:
            return self.share_slopes(slopes, num_classes)
        return slopes.against(top, num_classes) * self.pair_slope(num_classes) * (1 + 2.0**-50)

    def __str__(self) -> str:
        width = f"{self.width:g}" if isinstance(self.width, float) else "a width that is chosen"
        return f"{self.name} over {width}"


def _pairs(ramps: Ramps, top: NDArray[np.int64], known: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Of all pairs of an input's class and a rival the input, the rival and the constant of the vote, input by input.

    The rivals against whom the class has every vote are one, number c, with the largest of their constants: that makes
    the radius smallest.
    """
    found = []
    for i, k in enumerate(top.tolist()):
        listed = ramps.rivals(i, k)
        whole = np.delete(known[i], listed)
        rivals = listed[listed != k]
        constants = known[i, rivals]
        if whole.size:
            rivals, constants = np.append(rivals, len(known[i])), np.append(constants, whole.max())
        found.append((np.full(len(rivals), i), rivals, constants))
    inputs, rivals, constants = (np.concatenate(column) for column in zip(*found, strict=True))
    return inputs, rivals, constants
