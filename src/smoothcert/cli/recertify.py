"""smoothcert recertify"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from smoothcert.cli import arguments as arg
from smoothcert.cli.tables import columns_of, print_estimates, print_methods
from smoothcert.errors import InputError, RunError
from smoothcert.store import PATIENCE, open_run


def recertify(
    run: arg.RunPath,
    method: Annotated[
        str | None, typer.Option(help="Methods, separated by commas; all that fit the votes unless given.")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Risk; the run's own unless given.")] = None,
    estimated: arg.Estimated = False,
    patience: arg.Patience = PATIENCE,
) -> None:
    """Compute certificates again from the stored votes, by other methods or at another level. No model is needed.

    Example: `smoothcert recertify digits_cnn-digits-sigma0.25.smoothcert --method mono,cpm --alpha 0.01`
    """
    console = Console()
    opened = open_run(run, patience=patience)
    if opened.plan.classifier.is_bare:
        raise InputError(f"{run} {opened.plan.question.draws.final}: what it proves, `smoothcert show {run}` tells.")
    if not len(opened):
        raise RunError(f"{run} has no input with all its draws yet: let certify finish first.")
    methods = list(opened.compared) if method is None else [m.strip() for m in method.split(",")]
    print_methods(columns_of(opened, methods, alpha), opened, console)
    print_estimates(opened, methods, alpha, estimated, console)
    if any(m not in opened.methods for m in methods):
        kind = opened.plan.classifier.votes.name.capitalize()
        console.print(f"{kind} and labels make two classifiers: what methods for labels prove is about that of labels.")
    if len(methods) > 1:
        console.print(
            f"The run declared {opened.plan.question.method} before its first draw. Each column holds at its own α; "
            f"taking the best of them for each input spends α more than once."
        )
