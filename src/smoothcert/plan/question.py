"""What is asked of a classifier."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from smoothcert.checks import MOST_DRAWS, check_level, check_whole
from smoothcert.errors import InputError
from smoothcert.options import choice, keep, make, number_or_name, option
from smoothcert.plan.classifier import Classifier
from smoothcert.plan.draws import FixedN, NoDraws, UntilRadii, UntilWidth
from smoothcert.plan.kinds import PROVED, Labels, Proved, by_claims
from smoothcert.plan.schedules import Schedule
from smoothcert.plan.slopes import Slopes
from smoothcert.plan.tally import Tally

GIVEN, PRODUCT, LOCAL = "given", "product", "local"


@dataclass(frozen=True)
class Question:
    """How large a radius do votes prove at risk α? n0 draws select the class, further ones prove the radius."""

    n0: int = option(100, help="Draws that select the class.")
    draws: FixedN | UntilRadii | UntilWidth | NoDraws = choice(FixedN, UntilRadii, UntilWidth)
    alpha: float = option(0.001, help="Risk that a certificate is wrong, per input.")
    lipschitz: float | str | None = option(
        None,
        help="The ℓ2 constant of the scores, for larger radii from soft votes: a number you vouch for, product (proved "
        "from the layers) or local (an estimate of the shares' own).",
        panel="Soft votes",
        parse=number_or_name,
    )

    @classmethod
    def of(cls, **given: Any) -> Question:
        """The question that keywords make; None is not given.

        >>> Question.of(radii=[0.25, 0.5], max_n=10_000).draws
        UntilRadii(max_n=10000, futility=0.05, radii=(0.25, 0.5))
        """
        return make(cls, given)

    @classmethod
    def without_noise(cls) -> Question:
        """How large a radius do the scores prove by themselves, with certainty?"""
        return cls(n0=0, draws=NoDraws(), alpha=0.0, lipschitz=PRODUCT)

    def __post_init__(self) -> None:
        if isinstance(self.draws, NoDraws):
            if (self.n0, self.alpha, self.lipschitz) != (0, 0.0, PRODUCT):
                raise InputError("without noise there are no draws and no risk: leave out `n0`, `alpha`, `lipschitz`.")
            return
        keep(self, n0=check_whole("n0", self.n0, 1, MOST_DRAWS), alpha=check_level(self.alpha))
        if not isinstance(self.draws, FixedN | UntilRadii | UntilWidth):
            raise InputError(f"draws must be FixedN(), UntilRadii() or UntilWidth(), got {self.draws!r}.")
        if (basis := getattr(self.lipschitz, "basis", None)) is not None:  # a LipschitzBound, which takes torch to make
            if basis != PROVED:
                raise InputError(f"this Lipschitz bound is {basis}, not proved: take it by method fourier or gram.")
            if getattr(self.lipschitz, "coarse", False):
                raise InputError("this Lipschitz bound is of a network that rounds more coarsely than float32.")
            keep(self, lipschitz=getattr(self.lipschitz, "value", None))
        known = self.lipschitz
        number = isinstance(known, int | float) and not isinstance(known, bool) and 0 < known < math.inf
        if known is not None and known not in (PRODUCT, LOCAL) and not number:
            raise InputError(f"lipschitz must be a positive number, product or local, got {known!r}.")

    @property
    def method(self) -> str:
        return self.draws.method or ""

    @property
    def source(self) -> str | None:
        """Where the Lipschitz constant comes from: given, product or local."""
        return GIVEN if isinstance(self.lipschitz, int | float) else self.lipschitz

    def about(self, classifier: Classifier) -> Question:
        """The question with the method that these votes have unless one was named; what does not go together is
        refused."""
        kind = classifier.votes
        if isinstance(self.draws, NoDraws) != classifier.is_bare:
            raise InputError("without noise there are no draws, and without draws no noise: ask for both or neither.")
        if isinstance(self.draws, NoDraws):
            return self
        if self.lipschitz is not None:
            if kind.jumps:
                raise InputError(
                    f"{kind.name} votes jump, so no Lipschitz constant says anything about them: use margins, "
                    f"softmax or sparsemax votes."
                )
            if classifier.noise != "gaussian":
                raise InputError(
                    f"with {classifier.noise} noise the classifier rounds its input, which is not Lipschitz: use "
                    f"gaussian noise, or no Lipschitz constant."
                )
        if not isinstance(self.draws, FixedN):
            kind.rule(self.draws, classifier.sigma, self.alpha, classifier.num_classes)
            return self
        if kind.most_draws is not None and not (2 <= self.draws.n <= kind.most_draws and self.n0 <= kind.most_draws):
            raise InputError(
                f"soft votes need from 2 to {kind.most_draws:,} draws, got n0 = {self.n0} and n = {self.draws.n}."
            )
        method = kind.default_method if self.draws.method is None else self.draws.method
        if method in kind.beside:
            raise InputError(f"{method} is a method for labels, and the votes are {kind.name}: use `votes` labels.")
        if not isinstance(method, str) or method not in kind.methods:
            raise InputError(f"unknown method {method!r} for {kind.name}: choose one of {', '.join(kind.methods)}.")
        return dataclasses.replace(self, draws=dataclasses.replace(self.draws, method=method))

    def again(self, classifier: Classifier, method: str | None, alpha: float | None) -> tuple[Classifier, Question]:
        """The question asked of the same votes by another method or at another level, and of which classifier.

        Label votes are kept beside duels and shares: their methods are about the classifier of the labels.
        """
        method, alpha = method or self.method, self.alpha if alpha is None else alpha
        if not isinstance(self.draws, FixedN):
            if (method, alpha) != (self.method, self.alpha):
                raise InputError(self.draws.final)
            return classifier, self
        if method in classifier.votes.beside:
            classifier = dataclasses.replace(classifier, votes=Labels())
        asked = dataclasses.replace(
            self,
            alpha=alpha,
            draws=dataclasses.replace(self.draws, method=method),
            lipschitz=self.lipschitz if classifier.votes.soft else None,
        )
        return classifier, asked.about(classifier)

    def schedule(self, classifier: Classifier, level: float, inputs: int, decided: Iterable[int] = ()) -> Schedule:
        """Which blocks of so many inputs are wanted, those that are decided left out."""
        return self.draws.schedule(classifier, self.n0, level, inputs, decided)

    def prove(self, classifier: Classifier, tally: Tally, level: float, slopes: Slopes | None = None) -> Proved:
        """What the votes prove; `slopes` say how steep the scores are."""
        if tally.claims is not None:
            return by_claims(tally, self.n0)
        return classifier.votes.prove(tally, self.method, level, classifier.sigma, slopes)
