"""Votes to certificates: what the counts prove, with its α, its method and its basis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds import DEFAULT_INTERVAL, DEFAULT_METHOD, METHODS, SOFT_METHODS, Method, SoftMethod, SoftVotes
from smoothcert.bounds.margins import candidates
from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.checks import check_counts, check_level, check_sigma, less_error
from smoothcert.errors import InputError

PROVED, ESTIMATED = "proved", "estimated"


@dataclass(frozen=True)
class Certificate:
    """With probability at least 1 − α over the draws, the smoothed classifier returns `prediction` at x + δ for
    every ‖δ‖₂ < `radius`. An abstention has prediction -1 and radius 0 and states nothing.

    The smoothed classifier returns the class with most votes, or, with soft `votes`, with the largest mean share of a
    vote. `lipschitz` is the ℓ2 constant of each share that the radius rests on; where it was estimated, so is the
    `basis`, and nothing is proved.
    """

    prediction: int
    radius: float
    sigma: float
    alpha: float
    method: str
    noise: str
    basis: str
    n0: int
    n: int
    num_buckets: int | None = None
    noise_error: float = 0.0
    votes: str = "hard"
    lipschitz: float | None = None

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

    def _repr_html_(self) -> str:
        from smoothcert.report.notebook import certificate_html

        return certificate_html(self)


def certify_counts(
    selection: ArrayLike,
    estimation: ArrayLike,
    *,
    sigma: float,
    alpha: float = 0.001,
    method: str = DEFAULT_METHOD,
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
    alpha: float = 0.001,
    method: str = DEFAULT_METHOD,
    noise: str = "gaussian",
    noise_error: float = 0.0,
) -> list[Certificate]:
    """One certificate a row of the (m, c) vote counts.

    `noise_error` is how far the noise may be from the exact one, in total variation over all estimation draws of an
    input; it is taken off α.
    """
    selection, estimation = check_counts(selections, "selection"), check_counts(estimations, "estimation")
    if selection.shape != estimation.shape:
        raise InputError(
            f"selection and estimation counts must have the same shape, got {selection.shape} and "
            f"{estimation.shape}: both need one row per input and one column per class."
        )
    margins = find_method(method)(selection, estimation, less_error(check_level(alpha), noise_error))
    radii = check_sigma(sigma) * np.maximum(margins.t, 0.0) / 2
    buckets = margins.num_buckets
    return [
        Certificate(
            prediction=int(top) if radius > 0 else ABSTAIN,
            radius=float(radius),
            sigma=float(sigma),
            alpha=float(alpha),
            method=method,
            noise=noise,
            basis=PROVED,
            n0=int(n0),
            n=int(n),
            num_buckets=None if buckets is None else int(buckets[i]),
            noise_error=noise_error,
        )
        for i, (top, radius, n0, n) in enumerate(
            zip(candidates(selection), radii, selection.sum(axis=1), estimation.sum(axis=1), strict=True)
        )
    ]


def certify_soft_batch(
    selections: SoftVotes,
    estimations: SoftVotes,
    *,
    sigma: float,
    votes: str,
    alpha: float = 0.001,
    interval: str = DEFAULT_INTERVAL,
    lipschitz: NDArray[np.float64] | None = None,
    basis: str = PROVED,
    noise: str = "gaussian",
    noise_error: float = 0.0,
) -> list[Certificate]:
    """One certificate an input, from soft votes; `lipschitz` are the constants (m,) of each class's share, or None."""
    constants = np.full(len(selections.n), np.inf) if lipschitz is None else lipschitz
    level = less_error(check_level(alpha), noise_error)
    radii = find_interval(interval)(selections, estimations, level, check_sigma(sigma), constants)
    return [
        Certificate(
            prediction=int(top) if radius > 0 else ABSTAIN,
            radius=float(radius),
            sigma=float(sigma),
            alpha=float(alpha),
            method=interval,
            noise=noise,
            basis=basis,
            n0=int(n0),
            n=int(n),
            noise_error=noise_error,
            votes=votes,
            lipschitz=None if lipschitz is None else float(constant),
        )
        for top, radius, n0, n, constant in zip(
            selections.candidates, radii, selections.n, estimations.n, constants, strict=True
        )
    ]


def find_interval(name: str) -> SoftMethod:
    """The method for soft votes of that name."""
    if not isinstance(name, str) or name not in SOFT_METHODS:
        raise InputError(f"unknown interval {name!r}: choose one of {', '.join(SOFT_METHODS)}.")
    return SOFT_METHODS[name]


def find_method(name: str) -> Method:
    """The confidence method of that name."""
    if isinstance(name, str) and name in SOFT_METHODS:
        raise InputError(f"{name} is for soft votes: certify with softmax or sparsemax votes to use it.")
    if not isinstance(name, str) or name not in METHODS:
        raise InputError(f"unknown method {name!r}: choose one of {', '.join(METHODS)}.")
    return METHODS[name]
