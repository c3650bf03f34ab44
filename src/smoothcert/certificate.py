"""Votes to certificates: what the counts prove, with its α, its method and its basis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.bounds import DEFAULT_METHOD, METHODS, Method
from smoothcert.bounds.margins import candidates
from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.checks import check_counts, check_level, check_sigma
from smoothcert.errors import InputError

PROVED, ESTIMATED = "proved", "estimated"


@dataclass(frozen=True)
class Certificate:
    """With probability at least 1 − α over the draws, the smoothed classifier returns `prediction` at x + δ for
    every ‖δ‖₂ < `radius`. An abstention has prediction -1 and radius 0 and states nothing.
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
) -> list[Certificate]:
    """One certificate a row of the (m, c) vote counts."""
    selection, estimation = check_counts(selections, "selection"), check_counts(estimations, "estimation")
    if selection.shape != estimation.shape:
        raise InputError(
            f"selection and estimation counts must have the same shape, got {selection.shape} and "
            f"{estimation.shape}: both need one row per input and one column per class."
        )
    margins = find_method(method)(selection, estimation, check_level(alpha))
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
        )
        for i, (top, radius, n0, n) in enumerate(
            zip(candidates(selection), radii, selection.sum(axis=1), estimation.sum(axis=1), strict=True)
        )
    ]


def find_method(name: str) -> Method:
    """The confidence method of that name."""
    if not isinstance(name, str) or name not in METHODS:
        raise InputError(f"unknown method {name!r}: choose one of {', '.join(METHODS)}.")
    return METHODS[name]
