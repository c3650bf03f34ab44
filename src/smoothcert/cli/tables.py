"""Tables of certified accuracy for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from smoothcert.certificate import ABSTAIN, ESTIMATED, PROVED, Certificate
from smoothcert.cli import translated
from smoothcert.errors import InputError
from smoothcert.store.run import Run
from smoothcert.summary import certified_radii, summary_at, usual_radii
from smoothcert.text import counted, printable


def print_run(run: Run, console: Console, estimated: bool = False, radii: Sequence[float] = ()) -> None:
    """The end of `certify`: what was proved, and what it took; where asked, a second table of what is estimated."""
    if not len(run):
        console.print("No input has all its draws yet.")
        return
    method = run.plan.question.method
    if said := run.too_long():
        console.print(f"Not shown: {translated(said, 'show')}", highlight=False)
    else:
        print_methods(columns_of(run, [method]), run, console, radii=radii)
        print_estimates(run, [method], None, estimated, console)
    if said := str(run.accuracies):
        console.print(f"accuracy: {said}", highlight=False)
    seconds = float(run.tally.seconds.sum())
    rate = f", {run.draws / seconds:,.0f} draws/s" if seconds and run.draws else ""
    if not run.plan.classifier.is_bare:
        console.print(f"{run.draws:,} draws in {timedelta(seconds=round(seconds))}{rate}", highlight=False)
        console.print(f"noise: {run.plan.noise_in_words}; seed {run.plan.setting.seed}", highlight=False)
    if run.plan.adaptive:
        used = [c.n for c in run.certificates()]
        console.print(f"{np.mean(used):,.0f} draws an input on average, {np.median(used):,.0f} in the median")


def columns_of(run: Run, methods: Sequence[str], alpha: float | None = None) -> dict[str, Sequence[Certificate]]:
    """What is proved, by method; a single one with a proved Lipschitz constant also without it."""
    columns: dict[str, Sequence[Certificate]] = {run.called(m): run.certificates(m, alpha) for m in methods}
    if run.plan.constant is not None and not run.claimed and len(methods) == 1 and methods[0] in run.methods:
        columns = {f"{methods[0]}, L = ∞": run.certificates(methods[0], alpha, plain=True), **columns}
    return columns


def print_estimates(run: Run, methods: Sequence[str], alpha: float | None, asked: bool, console: Console) -> None:
    """What rests on estimated Lipschitz constants, in a table of its own, or how to ask for it."""
    if run.plan.estimates and asked:
        own = [m for m in methods if m in run.methods]
        print_methods(
            {f"{m}, estimated": run.certificates(m, alpha, estimated=True) for m in own}, run, console, ESTIMATED
        )
    elif run.plan.estimates:
        console.print("Radii from the estimated Lipschitz constants are no proof: --estimated shows them.")
    elif asked:
        raise InputError(f"{run.path} has no estimated constants: certify with `lipschitz` local for them.")
    if run.plan.votes_in_words:
        console.print(f"votes: {run.plan.votes_in_words}", highlight=False)


def print_methods(
    columns: Mapping[str, Sequence[Certificate]],
    run: Run,
    console: Console,
    basis: str = PROVED,
    radii: Sequence[float] = (),
) -> None:
    """Certified accuracy against radius, a column each method, all on one basis."""
    won = {name: certified_radii(certificates, run.labels) for name, certificates in columns.items()}
    asked = tuple(radii) or run.plan.radii
    rows = np.array(asked) if asked else usual_radii(max(max(w.max(), 0.0) for w in won.values()))
    summaries = {name: summary_at(rows, won[name], certificates) for name, certificates in columns.items()}
    alpha = next(iter(columns.values()))[0].alpha
    question = run.plan.question
    draws = f", n0 = {question.n0:,}, n {'≤' if run.plan.adaptive else '='} {question.draws.most:,}, α = {alpha:g}"
    table = Table(
        title=f"{counted(len(run), 'input')}, {run.plan.classifier.sigma_in_words}{draws if alpha else ''}",
        title_justify="left",
        min_width=60,
    )
    table.add_column("certified accuracy" if basis == PROVED else f"accuracy, {basis}")
    for name in columns:
        table.add_column(name.replace("-", "-\n").replace(" (", "\n("), justify="right")
    table.add_row("right class, any radius", *(f"{s.accuracy:.3f}" for s in summaries.values()))
    for i, radius in enumerate(rows):
        table.add_row(f"at radius {radius:g}", *(f"{s.certified[i]:.3f}" for s in summaries.values()))
    table.add_section()
    table.add_row(
        "average certified radius" if basis == PROVED else f"average radius, {basis}",
        *(f"{s.average_radius:.4f}" for s in summaries.values()),
    )
    table.add_row("abstained", *(f"{s.abstained:.3f}" for s in summaries.values()))
    console.print(table)


def called(k: int, classes: Sequence[str] | None) -> str:
    """A class as it is shown: its number, and its name where there is one.

    >>> called(1, ("cat", "dog")), called(-1, None)
    ('1 dog', 'abstained')
    """
    if k == ABSTAIN:
        return "abstained"
    return str(k) if classes is None or k >= len(classes) else escape(printable(f"{k} {classes[k]}"))
