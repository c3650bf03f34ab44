"""smoothcert doctor"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from smoothcert.cli import arguments as arg
from smoothcert.store.doctor import diagnose
from smoothcert.text import counted

SHOWN = 20


def doctor(
    run: arg.RunPath,
    out: Annotated[Path | None, typer.Option(help="A new file for what is intact; certify draws the rest.")] = None,
) -> None:
    """Check a run file, and copy what is intact to a new one. The file itself is never changed.

    Exit code 0: healthy. 1: damaged.

    Example: `smoothcert doctor demo.smoothcert --out saved.smoothcert`
    """
    console = Console(highlight=False, markup=False, soft_wrap=True)
    found = diagnose(run, out)
    for fault in found.faults[:SHOWN]:
        console.print(f"- {fault}")
    if len(found.faults) > SHOWN:
        console.print(f"- and {len(found.faults) - SHOWN} more")
    intact = f"{counted(found.inputs, 'input')} and {counted(found.rows, 'row')} of votes"
    console.print(f"{run} is {'healthy' if found.healthy else 'damaged'}; {intact} are intact.")
    if out and found.inputs:
        console.print(f"They are in {out}: give certify the same arguments and --out {out} to draw what is missing.")
    if not found.healthy:
        raise typer.Exit(1)
