"""smoothcert show"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from smoothcert.cli import arguments as arg
from smoothcert.cli import translated
from smoothcert.cli.tables import print_run
from smoothcert.plan import Plan
from smoothcert.plan.draws import numbers
from smoothcert.records import flat
from smoothcert.store import PATIENCE, open_run
from smoothcert.text import counted, first_ten, listed


def show(
    run: arg.RunPath,
    radii: Annotated[str, typer.Option(help="Radii of the table, as 0.25,0.5,1.", show_default=False)] = "",
    estimated: arg.Estimated = False,
    patience: arg.Patience = PATIENCE,
) -> None:
    """Show a run's plan, its progress and what it proves; also while it is being written.

    Example: `smoothcert show digits_cnn-digits-sigma0.25.smoothcert`
    """
    console = Console()
    opened = open_run(run, patience=patience)
    table = Table.grid(padding=(0, 2))
    info = opened.info
    for name, value in (
        ("created", info.created),
        ("command", info.command),
        ("model", info.model),
        ("data", info.data),
        ("classes", listed(opened.plan.classifier.num_classes, info.classes)),
        ("versions", first_ten([f"{k} {v}" for k, v in info.versions.items()])),
        *_declared(opened.plan),
        (
            "done",
            f"{len(opened):,} of {counted(opened.plan.selection.total, 'input')}"
            + (" (radii only, no votes)" if opened.voteless else ""),
        ),
    ):
        table.add_row(name, escape(str(value)))
    console.print(table, highlight=False)
    print_run(opened, console, estimated, numbers(radii) if radii else ())
    if opened.hint:
        console.print(f"Hint: {translated(opened.hint, 'show')}")


def _declared(plan: Plan) -> Iterator[tuple[str, object]]:
    """The plan, noun by noun."""
    for noun in ("classifier", "question", "setting", "selection"):
        for name, value in flat(getattr(plan, noun)).items():
            if value not in (None, ""):
                yield f"{noun}: {name}", first_ten(value) if isinstance(value, tuple) else value
    if plan.noise_error:
        yield "noise error", plan.noise_error
    if plan.constant is not None:
        yield "constant", plan.constant
