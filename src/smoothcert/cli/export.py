"""smoothcert export"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from smoothcert.cli import arguments as arg
from smoothcert.store import PATIENCE, open_run
from smoothcert.store.export import beside, export_run
from smoothcert.text import counted


def export(
    run: arg.RunPath,
    format: Annotated[
        str, typer.Option("--format", help="tsv (the columns of Cohen's logs), csv, parquet or json.")
    ] = "tsv",
    out: Annotated[Path | None, typer.Option(help="The file to write; beside the run unless given.")] = None,
    method: Annotated[str | None, typer.Option(help="Method; the declared one unless given.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Risk; the declared one unless given.")] = None,
    estimated: Annotated[
        bool,
        typer.Option("--estimated", help="What rests on estimated Lipschitz constants instead: that is no proof."),
    ] = False,
    patience: arg.Patience = PATIENCE,
) -> None:
    """Write a run's certificates for other programs.

    Example: `smoothcert export digits_cnn-digits-sigma0.25.smoothcert --format tsv --out digits.tsv`
    """
    path = out or beside(run, f"{'-estimated' if estimated else ''}.{format}")
    count = export_run(open_run(run, patience=patience), path, format, method, alpha, estimated)
    Console().print(f"Wrote {counted(count, 'certificate')} to {path}", highlight=False, markup=False, soft_wrap=True)
