"""Votes to certificates: what the counts prove, with its α, its method and its basis."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.checks import MOST_DRAWS, check_counts, check_tally, check_whole, less_error
from smoothcert.errors import InputError
from smoothcert.plan import ESTIMATED, PROVED, Classifier, Duels, FixedN, Labels, Question, Slopes, Tally
from smoothcert.plan.tally import Fought
from smoothcert.sampling.identity import Identity
from smoothcert.text import html_table, radius_text

AT_ONCE = 1 << 22
"""Counts that bounds are computed of together: what they need for that is a multiple of it."""


@dataclass(frozen=True)
class Certificate:
    """With probability at least 1 − α over the draws, the smoothed `classifier` returns `prediction` at x + δ for
    every ‖δ‖₂ < `radius`. An abstention has prediction -1 and radius 0 and states nothing. Without noise σ, α, n0 and n
    are 0: the classifier is the model itself, and the statement is certain.

    It answers the `question` with n0 draws that selected the class and n that proved the radius. `lipschitz` is the ℓ2
    constant of each class's share of a vote that the radius rests on; where it was estimated, so is the `basis`, and
    nothing is proved. The base model is what the `engine` computes, in its precision, on its kind of device.
    """

    prediction: int
    radius: float
    basis: str
    n0: int
    n: int
    classifier: Classifier
    question: Question
    num_buckets: int | None = None
    noise_error: float = 0.0
    lipschitz: float | None = None
    engine: Identity | None = None

    @property
    def sigma(self) -> float:
        return self.classifier.sigma

    @property
    def noise(self) -> str:
        return self.classifier.noise

    @property
    def votes(self) -> str:
        return self.classifier.votes.name

    @property
    def alpha(self) -> float:
        return self.question.alpha

    @property
    def method(self) -> str:
        return self.question.method

    @property
    def level(self) -> float:
        """The level at which the radius was computed: α less the error of the noise."""
        return less_error(self.alpha, self.noise_error)

    @property
    def abstained(self) -> bool:
        return self.prediction == ABSTAIN

    def certified_at(self, radius: float) -> bool:
        """Does the certificate cover every perturbation shorter than this?"""
        return not self.abstained and radius <= self.radius

    def as_row(self) -> dict[str, object]:
        """Its facts by name, for tables."""
        names = ("prediction", "radius", "sigma", "alpha", "method", "noise", "basis", "n0", "n", "num_buckets")
        facts = {name: getattr(self, name) for name in (*names, "noise_error", "votes", "lipschitz")}
        return {**facts, "engine": "" if self.engine is None else str(self.engine)}

    def _repr_html_(self) -> str:
        """The statement, then what it rests on."""
        claim = (
            "<b>abstained</b>: nothing is claimed"
            if self.abstained
            else f"<b>class {self.prediction}</b> for every change shorter than "
            f"<b>{radius_text(self.radius, 4)}</b> (ℓ2)"
            + (", <b>estimated, not proved</b>" if self.basis == ESTIMATED else "")
        )
        fields = {
            "basis": self.basis,
            "risk α": f"{self.alpha:g}",
            "σ": f"{self.sigma:g}",
            "noise": self.noise,
            "method": self.method,
        }
        if self.noise_error:
            fields["level, less the noise's error"] = f"{self.level:.10g}"
        if self.engine is not None:
            fields["engine"] = str(self.engine)
        return f"<div>{claim}</div>" + html_table({**fields, "draws": f"{self.n0:,} + {self.n:,}"})


def certificates(
    classifier: Classifier,
    question: Question,
    tally: Tally,
    *,
    noise_error: float = 0.0,
    slopes: Slopes | None = None,
    basis: str = PROVED,
    engine: Identity | None = None,
) -> list[Certificate]:
    """One certificate an input: what its votes prove as an answer to the question.

    `slopes` say how steep the scores are, proved or as `basis` says. `noise_error` is how far the noise
    may be from the exact one, in total variation over all estimation draws of an input; it is taken off α.
    """
    level, step = less_error(question.alpha, noise_error), max(1, AT_ONCE // classifier.num_classes)
    found: list[Certificate] = []
    for start in range(0, len(tally.seconds), step):
        part = slice(start, start + step)
        near = None if slopes is None else slopes.rows(part)
        proved = question.prove(classifier, tally.rows(part), level, near)
        buckets, lipschitz = proved.num_buckets, proved.lipschitz
        found += (
            Certificate(
                prediction=int(top) if radius > 0 else ABSTAIN,
                radius=float(radius),
                basis=basis,
                n0=int(n0),
                n=int(n),
                classifier=classifier,
                question=question,
                num_buckets=None if buckets is None else int(buckets[i]),
                noise_error=noise_error,
                lipschitz=None if lipschitz is None else float(lipschitz[i]),
                engine=engine,
            )
            for i, (top, radius, n0, n) in enumerate(zip(proved.top, proved.radii, proved.n0, proved.n, strict=True))
        )
    return found


def certify_counts(
    selection: ArrayLike,
    estimation: ArrayLike,
    *,
    sigma: float,
    alpha: float = Question.alpha,
    method: str = Labels.default_method,
) -> Certificate:
    """The certificate of one input from its selection and estimation votes, each of shape (c,).

    >>> certify_counts([98, 2, 0], [9900, 90, 10], sigma=0.5, method="mono").radius > 1.1
    True
    """
    return certify_counts_batch([selection], [estimation], sigma=sigma, alpha=alpha, method=method)[0]


def certify_counts_batch(
    selections: ArrayLike | Sequence[ArrayLike],
    estimations: ArrayLike | Sequence[ArrayLike],
    *,
    sigma: float,
    alpha: float = Question.alpha,
    method: str = Labels.default_method,
) -> list[Certificate]:
    """One certificate a row of the (m, c) vote counts."""
    selection, estimation = check_counts(selections, "selection"), check_counts(estimations, "estimation")
    if selection.shape != estimation.shape:
        raise InputError(
            f"selection and estimation counts must have the same shape, got {selection.shape} and "
            f"{estimation.shape}: both need one row per input and one column per class."
        )
    classifier = Classifier(sigma=sigma, num_classes=selection.shape[1], votes=Labels())
    question = Question(alpha=alpha, draws=FixedN(method=method)).about(classifier)
    tally = Tally(selection, estimation, np.zeros(len(selection)))
    return [_as_drawn(c) for c in certificates(classifier, question, tally)]


def certify_duels(
    losses: ArrayLike, n: int, *, candidate: int, sigma: float, alpha: float = Question.alpha
) -> Certificate:
    """The certificate of one input whose candidate lost `losses[j]` of its n duels with class j, none with itself.

    A draw is a duel of the candidate k with each rival j: lost where `f_j > f_k`, or where both are equal and j < k.
    The candidate must come from other draws: taken from these, it would be wrong more often than α. Its n0 is 0, for
    nothing is known of them.

    >>> certify_duels([0, 90, 10], 10_000, candidate=0, sigma=0.5).radius > 1.1
    True
    """
    n = check_whole("n", n, 1, MOST_DRAWS)
    (lost,) = check_tally([losses], "losses")
    k = check_whole("candidate", candidate, 0, len(lost) - 1)
    if lost[k] or lost.max() > n:
        raise InputError(f"losses must lie between 0 and n = {n}, with none of the candidate to itself.")
    classifier = Classifier(sigma=sigma, num_classes=len(lost), votes=Duels())
    question = Question(alpha=alpha, draws=FixedN(n)).about(classifier)
    wins = np.zeros((2, 1, len(lost)), dtype=np.int64)
    wins[1, 0, k] = n
    others = Fought(lost[None], np.array([k]), np.array([k]))
    return certificates(classifier, question, Tally(wins[0], wins[1], np.zeros(1), others))[0]


def _as_drawn(certificate: Certificate) -> Certificate:
    """With a question that asks for as many draws as there were."""
    draws = FixedN(certificate.n, certificate.method)
    asked = dataclasses.replace(certificate.question, n0=certificate.n0, draws=draws)
    return dataclasses.replace(certificate, question=asked)


__all__ = [
    "ABSTAIN",
    "ESTIMATED",
    "PROVED",
    "Certificate",
    "certificates",
    "certify_counts",
    "certify_counts_batch",
    "certify_duels",
]
