"""smoothcert show"""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from smoothcert.cli import arguments as arg
from smoothcert.cli.tables import print_run
from smoothcert.store import open_run


def show(run: arg.RunPath, estimated: arg.Estimated = False) -> None:
    """Show a run's plan, its progress and what it proves; also while it is being written.

    Example: `smoothcert show digits_cnn-digits-sigma0.25.smoothcert`
    """
    console = Console()
    opened = open_run(run)
    table = Table.grid(padding=(0, 2))
    info = opened.info
    for name, value in (
        ("created", info.created),
        ("command", info.command),
        ("model", info.model),
        ("data", info.data),
        (
            "classes",
            ", ".join(info.classes[:10]) + (" …" if len(info.classes) > 10 else "") if info.classes else "-",
        ),
        ("versions", ", ".join(f"{k} {v}" for k, v in info.versions.items())),
        *((f"plan: {name}", value) for name, value in vars(opened.plan).items() if value not in (None, ())),
        (
            "done",
            f"{len(opened)} of {opened.plan.total} inputs" + (" (radii only, no votes)" if info.radii_only else ""),
        ),
    ):
        table.add_row(name, escape(str(value)))
    console.print(table, highlight=False)
    print_run(opened, console, estimated)
