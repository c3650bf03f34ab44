"""smoothcert report"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from smoothcert.cli import arguments as arg
from smoothcert.report.tables import larger
from smoothcert.report.write import FORMATS, write_report
from smoothcert.store import open_run


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run files; several are laid over each other.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; beside the first run unless given.")
    ] = None,
    format: Annotated[
        str | None, typer.Option("--format", help=f"{', '.join(FORMATS)}; as --out ends, else html.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, separated by commas; unless given the declared one, for one run beside the others."
        ),
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Risk per input; the declared one unless given.")] = None,
    rho: Annotated[float, typer.Option(help="Risk of the statement on the whole set.")] = 0.001,
    radii: Annotated[str | None, typer.Option(help="Radii of the table, separated by commas.")] = None,
    names: Annotated[str | None, typer.Option(help="Names of the runs, separated by commas.")] = None,
    estimated: arg.Estimated = False,
) -> None:
    """Write what runs prove as one page for the browser, or as a figure or a table for a paper.

    Example: `smoothcert report demo.smoothcert -o report.html`
    """
    written, paired = write_report(
        [open_run(path) for path in runs],
        out,
        format,
        methods=_split(methods),
        alpha=alpha,
        rho=rho,
        radii=_split(radii),
        names=_split(names) or (),
        estimated=estimated,
    )
    console = Console()
    if paired:
        console.print(f"On {paired.inputs} common inputs, {larger(paired)}", highlight=False, markup=False)
    console.print(f"Wrote {written}", highlight=False, soft_wrap=True, markup=False)


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",")]
