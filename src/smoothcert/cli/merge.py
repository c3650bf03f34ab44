"""smoothcert merge"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from smoothcert.cli.tables import print_run
from smoothcert.store.shards import merge_runs


def merge(
    shards: Annotated[list[Path], typer.Argument(metavar="SHARD", help="All files of one run.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The run file to write.")],
) -> None:
    """Join the files that `certify --shard 1/k` to `k/k` have written; the votes are those of the run never split.

    Example: `smoothcert merge part-*.smoothcert -o whole.smoothcert`
    """
    console = Console()
    run = merge_runs(shards, out)
    print_run(run, console)
    console.print(f"Votes are in {out}: smoothcert show {out}", highlight=False, markup=False, soft_wrap=True)
