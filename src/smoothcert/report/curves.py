"""The curves of a report: each is one run certified by one method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from smoothcert.certificate import ESTIMATED, PROVED, Certificate
from smoothcert.errors import InputError, RunError
from smoothcert.store.run import Run
from smoothcert.summary import certified_radii, curve, usual_radii
from smoothcert.text import printable

COLUMNS = 9


@dataclass(frozen=True)
class Curve:
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

    @cached_property
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

    @cached_property
    def steps(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Certified accuracy as a step function of the radius."""
        return curve(self.won)


def gather(
    runs: Sequence[Run],
    methods: Sequence[str] | None = None,
    alpha: float | None = None,
    names: Sequence[str] = (),
    estimated: bool = False,
) -> list[Curve]:
    """A curve for each run and chosen method; without a choice the declared one, and for a single run the others too.

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
    if methods is None and len(runs) == 1:
        chosen += [(run, label, m) for run, label, declared in chosen for m in run.compared if m != declared]
    one_method, alone = len({m for *_, m in chosen}) == 1, len(runs) == 1 and not names
    proved = [
        Curve(
            run=run,
            run_name=label,
            name=label if one_method else run.called(m) if alone else f"{label}, {run.called(m)}",
            certificates=run.certificates(m, alpha),
            asked=methods is not None or m == run.plan.question.method,
        )
        for run, label, m in chosen
    ]
    return proved + _estimated(proved, alpha) if estimated else proved


def firsts(curves: Sequence[Curve]) -> list[Curve]:
    """The first curve of each run."""
    found: dict[int, Curve] = {}
    for c in curves:
        found.setdefault(id(c.run), c)
    return list(found.values())


def table_radii(curves: Sequence[Curve]) -> NDArray[np.float64]:
    """The radii that adaptive runs were asked for, else round ones up to the largest that any curve reaches."""
    if all(c.run.plan.radii for c in curves):
        return np.unique([r for c in curves for r in c.run.plan.radii])
    return usual_radii(max(max(c.won.max(), 0.0) for c in curves), COLUMNS)


def _methods(run: Run, methods: Sequence[str] | None) -> Sequence[str]:
    declared = run.plan.question.method
    if methods is None:
        return [declared]
    kept = [m for m in methods if m == declared or not run.claimed]
    return kept or methods


def _estimated(proved: Sequence[Curve], alpha: float | None) -> list[Curve]:
    """The curves that rest on estimated Lipschitz constants, beside those that rest on proofs."""
    guesses = [
        replace(c, name=f"{c.name}, estimated", certificates=c.run.certificates(c.method, alpha, estimated=True))
        for c in proved
        if c.asked and c.run.plan.estimates and c.method in c.run.methods
    ]
    if not guesses:
        raise InputError("no run has estimated Lipschitz constants: certify with `lipschitz` local for them.")
    return guesses


def _names(runs: Sequence[Run]) -> list[str]:
    """What tells the runs apart, in few words: σ, the model, both, or the files' names."""
    sigmas, models = [r.plan.classifier.sigma_in_words for r in runs], [r.info.model for r in runs]
    same_sigma, same_model = len(set(sigmas)) == 1, len(set(models)) == 1
    both = [f"{model}, {sigma}" for model, sigma in zip(models, sigmas, strict=True)]
    files = [r.path.stem for r in runs]
    for candidates in (sigmas if same_model else models if same_sigma else both, files):
        if len(set(candidates)) == len(runs):
            return candidates
    return [f"{file} ({i})" for i, file in enumerate(files, start=1)]
