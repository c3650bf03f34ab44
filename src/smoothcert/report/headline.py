"""The first sentence of a report, and the few that explain it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds import clopper_pearson_lower, clopper_pearson_upper
from smoothcert.certificate import PROVED
from smoothcert.report.contents import Contents
from smoothcert.report.curves import Curve, table_radii
from smoothcert.report.sheets import Sheets
from smoothcert.store.run import Run
from smoothcert.text import counted, printable

FEW = 100
PREFERRED = [0.01, 0.02, 0.05, 0.1, 0.2, 0.25, *(m * 10**k for k in range(7) for m in (0.5, 1.0, 2.0))]
"""Radii that people choose."""


def headline(contents: Contents, sheets: Sheets | None) -> tuple[str, list[str]]:
    """The first sentence and the few that explain it."""
    candidates = claimed(contents)
    at = headline_radius(candidates, contents)
    best = max(candidates, key=lambda c: float((c.won >= at).mean()))
    count, inputs, run = int((best.won >= at).sum()), len(best.won), best.run
    several = len({id(c.run) for c in candidates})
    share = f"{100 * count / inputs:.1f}".removesuffix(".0")
    who = (
        f"{share}\u00a0% of the inputs are" if inputs >= FEW else f"{count} of {counted(inputs, 'input')} {_are(count)}"
    )
    claim = (
        f"{who} robust: the answer is right, and no change smaller than {at:g} can alter it."
        if count
        else f"No input has the right answer proved against changes as large as {at:g}."
    )
    model = printable(run.info.model) or "that of the imported log"
    facts = [
        f"{_verb(best)} for {count:,} of {counted(inputs, 'input')} ({printable(run.info.data)})"
        + (f" in the best of {several} runs, {printable(best.run_name)}. " if several > 1 else ". ")
        + _classifier(run, model, best.alpha)
    ]
    if not run.finished:
        total = run.plan.selection.total
        facts.append(f"The run is not finished: {len(run):,} of {total:,} inputs have all their draws.")
    if inputs < FEW:
        low, high = (f"{100 * float(bound):.0f}" for bound in _interval(count, inputs))
        facts.append(
            f"{counted(inputs, 'input')} {_are(inputs)} few: were they drawn at random, the share among all inputs "
            f"like them could be anything from {low} to {high}\u00a0% (confidence 95\u00a0%)."
        )
    facts += contents.remarks
    return claim, [*facts, _size(at, sheets)]


def headline_radius(curves: Sequence[Curve], contents: Contents) -> float:
    """The largest radius at which half of the inputs of a curve are certified, or else as many as at the smallest.

    It is one that was asked for, of the runs or of the report, or else one that a person would choose.
    """
    half = max(float(np.sort(c.won)[len(c.won) // 2]) for c in curves)
    asked = all(c.run.plan.radii for c in curves) or not np.array_equal(contents.radii, table_radii(contents.curves))
    reached = [r for r in (contents.radii.tolist() if asked else PREFERRED) if r <= half]
    if reached:
        return float(max(reached))
    counts = [max(int((c.won >= r).sum()) for c in curves) for r in contents.radii]
    alike = [r for r, count in zip(contents.radii, counts, strict=True) if count == counts[0] > 0]
    return float(max(alike, default=contents.radii[0]))


def claimed(contents: Contents) -> list[Curve]:
    """The curves of which the headline may take the best: what is proved, of runs that can be compared."""
    asked = [c for c in contents.curves if c.asked and (contents.comparable or c.run is contents.curves[0].run)]
    return [c for c in asked if c.basis == PROVED] or asked


def _classifier(run: Run, model: str, alpha: float) -> str:
    """Which one it is, and how sure its proofs are."""
    if run.plan.classifier.is_bare:
        return (
            f"The classifier is {model} itself: its scores can change so little with the input that no noise is "
            f"needed, and the proofs leave nothing to chance."
        )
    return (
        f"The classifier is {model}, smoothed: it looks at many noisy copies of an input (noise σ = "
        f"{run.plan.classifier.sigma:g}) and gives the answer that they elect. For each input, the risk that its "
        f"proof is wrong is at most {_odds(alpha)}."
    )


def _interval(count: int, inputs: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Clopper and Pearson's two-sided 95 % interval."""
    return clopper_pearson_lower(count, inputs, 0.025), clopper_pearson_upper(count, inputs, 0.025)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _verb(curve: Curve) -> str:
    return "This is proved" if curve.basis == PROVED else "This rests on an estimate, not on a proof,"


def _odds(alpha: float) -> str:
    if alpha < 1e-12:  # nobody reads so many digits
        return f"{alpha:g}"
    return f"1 in {round(1 / alpha):,}" if abs(round(1 / alpha) * alpha - 1) < 1e-9 else f"{alpha:g}"


def _size(radius: float, sheets: Sheets | None) -> str:
    """What a change of that size looks like."""
    norm = "square what is added to each number of the input, sum up, take the root (ℓ2 norm)"
    if sheets is None or not sheets.whole:
        return f"The size of a change: {norm}."
    unit = "pixel" if sheets.values == sheets.width * sheets.height else "colour value"
    one = f"one {unit} changed by {radius:g}, or " if radius <= 1 else ""
    return (
        f"How large is {radius:g}? As large as {one}all {sheets.values:,} {unit}s by {radius / sheets.values**0.5:.2g} "
        f"each, where 0 is dark and 1 is bright. In general: {norm}."
    )
