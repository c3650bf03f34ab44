"""Is enough certified? One question with a yes or a no, for continuous integration."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

from smoothcert.bounds.binomial import clopper_pearson_lower
from smoothcert.errors import InputError, RunError
from smoothcert.options import option
from smoothcert.store.run import Run
from smoothcert.summary import certified_radii
from smoothcert.text import counted


@dataclass(frozen=True)
class Gate:
    """Asks for a share of inputs with the right class, certified at a radius; with a confidence, of unseen inputs."""

    radius: float = option(help="The radius at which inputs must be certified.")
    at_least: float = option(help="The share of inputs that must be, between 0 and 1.")
    confidence: float | None = option(
        None, help="Ask it of unseen inputs of the same source, with this confidence, such as 0.95."
    )

    def __post_init__(self) -> None:
        if not 0 <= self.radius < float("inf"):
            raise InputError(f"`radius` is a number of at least 0, such as 0.25, got {self.radius!r}.")
        if not 0 <= self.at_least <= 1:
            raise InputError(f"`at_least` is a share between 0 and 1, such as 0.6, got {self.at_least!r}.")
        if self.confidence is not None and not 0 < self.confidence < 1:
            raise InputError(f"`confidence` lies strictly between 0 and 1, such as 0.95, got {self.confidence!r}.")

    def judge(self, run: Run) -> Verdict:
        """The verdict on a finished run, by its declared method and level.

        Of inputs drawn independently from a source, let Z say whether one is certified with its own label and T whether
        the smoothed classifier is right at every change shorter than the radius. P(Z and not T) ≤ α, so that
        P(T) ≥ P(Z) − α, and with the given confidence P(Z) is at least its Clopper-Pearson bound.
        """
        if not run.finished:
            raise RunError(
                f"{run.path} is not finished ({len(run)} of {run.plan.selection.total} inputs), and those that end "
                "first are no fair sample: let certify finish."
            )
        certified = int((certified_radii(run.certificates(), run.labels) >= self.radius).sum())
        share, alpha = certified / len(run), run.plan.question.alpha
        if self.confidence is not None:
            bound = float(clopper_pearson_lower(certified, len(run), 1 - self.confidence))
            share = max(0.0, bound - alpha)
        return Verdict(share >= self.at_least, share, certified, len(run), alpha, self)


@dataclass(frozen=True)
class Verdict:
    """`share` is what was compared: that of the run's inputs, or the lower bound for unseen ones."""

    passed: bool
    share: float
    certified: int
    inputs: int
    alpha: float
    gate: Gate

    def __str__(self) -> str:
        word, share = "Passed" if self.passed else "Failed", f"{floor(1e4 * self.share) / 1e4:.4f}"
        found = f"{self.certified} of {counted(self.inputs, 'input')} certified at radius {self.gate.radius:g}"
        wanted = f"at least {self.gate.at_least:g} is asked for."
        if self.gate.confidence is None:
            return f"{word}: {found}, a share of {share}; {wanted}"
        return (
            f"{word}: {found}, so with confidence {self.gate.confidence:g} at least a share of {share} of all inputs "
            f"of their source keep the right class there; {wanted}"
        )
