"""The curves of a report: each is one run certified by one method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds import SOFT_METHODS
from smoothcert.certificate import ESTIMATED, PROVED, Certificate
from smoothcert.errors import InputError, RunError
from smoothcert.report.summary import Summary, certified_radii, possibly_wrong, summarise, usual_radii
from smoothcert.store.run import Run
from smoothcert.text import printable

COLUMNS = 9


@dataclass(frozen=True)
class Series:
    """One run by one method. `asked` is false for methods that are there only to compare with."""

    run: Run
    run_name: str
    name: str
    certificates: Sequence[Certificate]
    asked: bool

    @property
    def method(self) -> str:
        return self.certificates[0].method

    @property
    def alpha(self) -> float:
        return self.certificates[0].alpha

    @property
    def basis(self) -> str:
        """Estimated as soon as one certificate is: a curve claims no more than its weakest point."""
        return ESTIMATED if any(c.basis == ESTIMATED for c in self.certificates) else PROVED

    @property
    def draws(self) -> int:
        return sum(c.n0 + c.n for c in self.certificates)

    @cached_property
    def won(self) -> NDArray[np.float64]:
        """The radius of each input certified with its own label, else -1."""
        return certified_radii(self.certificates, self.run.labels)

    def summary(self, radii: NDArray[np.float64]) -> Summary:
        return summarise(self.certificates, self.run.labels, radii)

    def possibly_wrong(self, rho: float) -> int:
        return possibly_wrong(len(self.certificates), self.alpha, rho)


def gather(
    runs: Sequence[Run],
    methods: Sequence[str] | None = None,
    alpha: float | None = None,
    names: Sequence[str] = (),
    estimated: bool = False,
) -> list[Series]:
    """A series for each run and chosen method; without a choice the declared one, and for a single run the others too.

    Radii from estimated Lipschitz constants are there only where `estimated` ones are asked for, and named so.
    A run whose radii were claimed as its draws ended, or imported without votes, has its own method only.
    """
    for run in runs:
        if not len(run):
            raise RunError(f"{run.path} has no input with all its draws yet: let certify finish first.")
    if names and len(names) != len(runs):
        raise InputError(f"{len(names)} names for {len(runs)} runs: give each run one name.")
    labels = map(printable, names or _names(runs))
    chosen = [(run, label, m) for run, label in zip(runs, labels, strict=True) for m in _methods(run, methods)]
    compare = [m for m in runs[0].methods if m != runs[0].plan.method]
    if methods is None and len(runs) == 1:
        chosen += [(runs[0], chosen[0][1], m) for m in compare]
    one_method = len({m for *_, m in chosen}) == 1
    proved = [
        Series(
            run=run,
            run_name=label,
            name=label if one_method else m if len(runs) == 1 and not names else f"{label}, {m}",
            certificates=run.certificates(m, alpha),
            asked=methods is not None or m == run.plan.method,
        )
        for run, label, m in chosen
    ]
    if not estimated:
        return proved
    guesses = [
        replace(s, name=f"{s.name}, estimated", certificates=s.run.certificates(s.method, alpha, estimated=True))
        for s in proved
        if s.asked and s.run.estimates and s.method in SOFT_METHODS
    ]
    if not guesses:
        raise InputError("no run has estimated Lipschitz constants: certify with --lipschitz local for them.")
    return proved + guesses


def table_radii(series: Sequence[Series]) -> NDArray[np.float64]:
    """The radii that adaptive runs were asked for, else round ones up to the largest that any series certifies."""
    if all(s.run.plan.radii for s in series):
        return np.unique([r for s in series for r in s.run.plan.radii])
    return usual_radii(max(max(s.won.max(), 0.0) for s in series), COLUMNS)


def _methods(run: Run, methods: Sequence[str] | None) -> Sequence[str]:
    if methods is None:
        return [run.plan.method]
    kept = [m for m in methods if m == run.plan.method or not run.claimed]
    return kept or methods


def _names(runs: Sequence[Run]) -> list[str]:
    """What tells the runs apart, in few words: σ, the model, both, or the files' names."""
    sigmas, models = [f"σ = {r.plan.sigma:g}" for r in runs], [r.info.model for r in runs]
    same_sigma, same_model = len(set(sigmas)) == 1, len(set(models)) == 1
    both = [f"{model}, {sigma}" for model, sigma in zip(models, sigmas, strict=True)]
    files = [r.path.stem for r in runs]
    for candidates in (sigmas if same_model else models if same_sigma else both, files):
        if len(set(candidates)) == len(runs):
            return candidates
    return [f"{file} ({i})" for i, file in enumerate(files, start=1)]
