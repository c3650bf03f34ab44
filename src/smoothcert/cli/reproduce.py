"""smoothcert reproduce"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from smoothcert.cli.progress import Meters
from smoothcert.errors import InputError
from smoothcert.experiments import CLAIMS
from smoothcert.experiments.reproduction import Result, Scale, Stage, write
from smoothcert.leaving import before_leaving


def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help=f"The claim: {', '.join(CLAIMS)}.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every claim, one after the other.")] = False,
    scale: Annotated[
        Scale, typer.Option(help="smoke: digits, a minute. cpu: CIFAR-10, an hour or two. paper: needs a GPU.")
    ] = Scale.SMOKE,
    data: Annotated[Path | None, typer.Option(help="CIFAR-10: its test set, or the folder of test.parquet.")] = None,
    imagenet: Annotated[Path | None, typer.Option(help="ImageNet's validation folder (paper scale).")] = None,
    checkpoints: Annotated[
        Path | None, typer.Option(help="Folder of trained networks (experiments/models), or of Cohen's archive.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for numbers, figures and run files.")] = Path("reproduction"),
) -> None:
    """Compute a figure or table of the paper again: numbers as JSON, figures as PNG and SVG. It resumes when stopped.

    Example: `smoothcert reproduce confidence --scale cpu --data cifar10 --out reproduction`
    """
    if every == (name is not None):
        raise InputError(f"name one claim or pass --all: {', '.join(CLAIMS)}.")
    if name is not None and name not in CLAIMS:
        raise InputError(f"unknown claim {name!r}: choose one of {', '.join(CLAIMS)}.")
    out.mkdir(parents=True, exist_ok=True)
    console = Console()
    for claim in [name] if name is not None else CLAIMS:
        with Meters() as meters, before_leaving(partial(_stopped, out)):
            stage = Stage(scale, out, data, imagenet, checkpoints, meters)
            try:
                result = CLAIMS[claim](stage)
            except KeyboardInterrupt:
                meters.stop()
                console.print(_stopped(out), highlight=False, markup=False, soft_wrap=True)
                raise typer.Exit(1) from None
        _print(result, console)
        paths = write(claim, result, stage)
        console.print("Written: " + ", ".join(map(str, paths)) + "\n", highlight=False, markup=False, soft_wrap=True)


def _stopped(out: Path) -> str:
    if any(path.is_file() for path in out.rglob("*")):
        return f"Stopped. {out} keeps what was done: run the same command to go on."
    return "Stopped before anything was done: the same command begins again."


def _print(result: Result, console: Console) -> None:
    table = Table(title=result.title, title_justify="left")
    for i, heading in enumerate(result.columns):
        table.add_column(heading, justify="left" if i == 0 else "right")
    for row in result.rows:
        table.add_row(*row)
    console.print(table, highlight=False)
    for remark in result.remarks:
        console.print(remark, highlight=False, markup=False)
