"""What a run is made of: four nouns, each a small frozen type that checks itself where it is made.

classifier  which smoothed classifier a certificate speaks of
question    what is asked of it
setting     how it is computed
selection   which inputs
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.checks import less_error
from smoothcert.plan.adaptive import Rule, bears
from smoothcert.plan.classifier import Classifier
from smoothcert.plan.draws import FixedN, NoDraws, UntilRadii, UntilWidth
from smoothcert.plan.kinds import (
    ESTIMATED,
    KINDS,
    PROVED,
    Duels,
    Hardmax,
    Kind,
    Labels,
    Margins,
    Proved,
    Softmax,
    Sparsemax,
)
from smoothcert.plan.question import PRODUCT, Question
from smoothcert.plan.selection import Selection
from smoothcert.plan.setting import Cluster, Setting
from smoothcert.plan.slopes import Kept, Slopes, between
from smoothcert.plan.tally import Tally
from smoothcert.records import flat

SCORES, SHARES = "scores", "shares"
"""What local constants are of."""


@dataclass(frozen=True)
class Plan:
    """What was declared before the first draw: the four nouns, settled. A run is resumed only under an equal plan.

    `noise_error` is how far the noise of an input may be from the exact one, in total variation over all its
    estimation draws; it is taken off α. `constant` is the ℓ2 constant of the scores, given or proved, and `pairs` keeps
    what is proved of their differences. `local_of` says what local constants are of: the shares of a vote themselves,
    or, in older files, the scores.
    """

    classifier: Classifier
    question: Question
    setting: Setting
    selection: Selection
    noise_error: float = 0.0
    constant: float | None = None
    pairs: Kept = ()
    local_of: str = SCORES

    def __post_init__(self) -> None:
        if self.noise_error < 0 or (self.constant is not None and not self.constant > 0):
            raise ValueError("a number out of range")
        if self.local_of not in (SCORES, SHARES):
            raise ValueError("local constants of neither scores nor shares")
        if self.question.source != PRODUCT and (self.pairs or self.constant not in (None, self.question.lipschitz)):
            raise ValueError("constants that nothing proved, and nobody gave")
        between(self.pairs, self.classifier.num_classes)
        less_error(self.question.alpha, self.noise_error)

    @property
    def level(self) -> float:
        """The level at which bounds are computed: α less the error of the noise."""
        return less_error(self.question.alpha, self.noise_error)

    @property
    def noise_in_words(self) -> str:
        """The kind of noise; of a grid also its step, and what its rounding costs."""
        noise, levels = self.classifier.noise, self.classifier.levels
        if levels is None:
            return noise
        return f"{noise} of 1/{levels}, error {self.noise_error:.2g} taken off α: level {self.level:.10g}"

    @property
    def votes_in_words(self) -> str:
        """How votes are shared, and the Lipschitz constant that goes with them; nothing of labels."""
        kind = self.classifier.votes
        if not kind.soft:
            return ""
        words = str(kind)
        if self.constant is not None:
            known = self.slopes(1)
            share = float(kind.share_slopes(known, self.classifier.num_classes).max()) if known else math.inf
            words += (
                f"; ℓ2 constant of the scores {self.constant:.4g} ({self.question.source}), of a share L = {share:.4g}"
            )
        return words + (f"; local constants of the {self.local_of} are estimated" if self.estimates else "")

    @property
    def known_pairs(self) -> NDArray[np.float64]:
        """The constants (c, c) of the scores' differences, of a plan that rests on them."""
        c, known = self.classifier.num_classes, self.slopes(1)
        assert known is not None
        return np.broadcast_to(known.against(np.arange(c), c), (c, c))

    def slopes(self, inputs: int) -> Slopes | None:
        """What is given or proved of the scores, for so many inputs."""
        if self.constant is None:
            return None
        return Slopes(np.full(inputs, self.constant), between(self.pairs, self.classifier.num_classes))

    @property
    def adaptive(self) -> bool:
        """Do the votes decide how many are drawn?"""
        return isinstance(self.question.draws, UntilRadii | UntilWidth)

    @property
    def rule(self) -> Rule | None:
        """What ends the draws of an input, where votes do."""
        draws = self.question.draws
        return draws.rule(self.classifier, self.level) if isinstance(draws, UntilRadii | UntilWidth) else None

    @property
    def radii(self) -> tuple[float, ...]:
        """The radii that were asked for, if any."""
        return self.question.draws.radii if isinstance(self.question.draws, UntilRadii) else ()

    @property
    def estimates(self) -> bool:
        """Are there estimated Lipschitz constants, for radii that are no proof?"""
        return self.question.source == "local"

    @property
    def local_constants_of(self) -> str:
        """What those of a new run are of."""
        return SHARES if self.estimates and self.classifier.votes.shares is not None else SCORES


def differences(before: Plan, now: Plan) -> Iterator[tuple[str, Any, Any]]:
    """What was declared otherwise: its name, the value before and the value now."""
    ours, theirs = ({name: v for part in _parts(plan) for name, v in flat(part).items()} for plan in (before, now))
    for name in {**ours, **theirs}:
        if ours.get(name) != theirs.get(name):
            yield name, ours.get(name), theirs.get(name)
    if before.local_of != now.local_of:
        yield "local_of", before.local_of, now.local_of


def _parts(plan: Plan) -> tuple[Any, ...]:
    return plan.classifier, plan.question, plan.setting, plan.selection


__all__ = [
    "ESTIMATED",
    "KINDS",
    "PROVED",
    "SHARES",
    "Classifier",
    "Cluster",
    "Duels",
    "FixedN",
    "Hardmax",
    "Kind",
    "Labels",
    "Margins",
    "NoDraws",
    "Plan",
    "Proved",
    "Question",
    "Selection",
    "Setting",
    "Slopes",
    "Softmax",
    "Sparsemax",
    "Tally",
    "UntilRadii",
    "UntilWidth",
    "bears",
    "differences",
]
