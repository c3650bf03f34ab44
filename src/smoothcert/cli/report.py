"""smoothcert report"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from smoothcert.cli import arguments as arg
from smoothcert.cli.nouns import Given, derived
from smoothcert.report.contents import Wanted
from smoothcert.report.tables import larger
from smoothcert.report.write import FORMATS, write_report
from smoothcert.store import PATIENCE, open_run
from smoothcert.text import counted


@derived(wanted=Wanted)
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run files; several are laid over each other.")],
    wanted: Given,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; beside the first run unless given.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--format", help=f"{', '.join(FORMATS)}; as --out ends, else html.")
    ] = None,
    patience: arg.Patience = PATIENCE,
) -> None:
    """Write what runs prove as one page for the browser, or as a figure or a table for a paper.

    Example: `smoothcert report demo.smoothcert -o report.html`
    """
    written, paired = write_report([open_run(path, patience=patience) for path in runs], out, kind, **wanted)
    console = Console()
    if paired:
        console.print(f"On {counted(paired.inputs, 'common input')}, {larger(paired)}", highlight=False, markup=False)
    console.print(f"Wrote {written}", highlight=False, soft_wrap=True, markup=False)
