"""smoothcert recertify"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from smoothcert.bounds import METHODS
from smoothcert.cli import arguments as arg
from smoothcert.cli.tables import print_methods
from smoothcert.errors import RunError
from smoothcert.store import open_run


def recertify(
    run: arg.RunPath,
    method: Annotated[str, typer.Option(help="Methods, separated by commas.")] = ",".join(METHODS),
    alpha: Annotated[float | None, typer.Option(help="Risk; the run's own unless given.")] = None,
) -> None:
    """Compute certificates again from the stored votes, by other methods or at another level. No model is needed.

    Example: `smoothcert recertify digits_cnn-digits-sigma0.25.smoothcert --method mono,cpm --alpha 0.01`
    """
    console = Console()
    opened = open_run(run)
    if not len(opened):
        raise RunError(f"{run} has no input with all its draws yet: let certify finish first.")
    methods = [m.strip() for m in method.split(",")]
    print_methods({m: opened.certificates(m, alpha) for m in methods}, opened, console)
    if len(methods) > 1:
        console.print(
            f"The run declared {opened.plan.method} before its first draw. Each column holds at its own α; taking the "
            f"best of them for each input spends α more than once."
        )
