"""smoothcert import"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from smoothcert.cli.tables import print_run
from smoothcert.store.logs import import_logs


def import_(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG", help="One log with radii, or two with votes.")],
    out: Annotated[Path, typer.Option(help="The run file to write.")],
    sigma: Annotated[float | None, typer.Option(help="Noise, where the log or its name does not tell.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Risk the log was made with; 0.001 where it does not tell.")
    ] = None,
    n0: Annotated[int | None, typer.Option(help="Selection draws of a log with radii (100).")] = None,
    n: Annotated[int | None, typer.Option(help="Estimation draws of a log with radii (100 000).")] = None,
    num_classes: Annotated[int | None, typer.Option(help="Classes of a log with radii.")] = None,
) -> None:
    """Read logs of other programs into a run file.

    One log of `locuslab/smoothing` (idx, label, predict, radius, correct, time; radii only, and marked so), or the two
    vote logs of "Bridging the Theoretical Gap" (idx, label, counts) with their certify_args.json beside them.

    Example: `smoothcert import cifar10__resnet110__noise_0.50__test__sigma_0.50.tsv --out cohen.smoothcert`
    """
    console = Console()
    run = import_logs(logs, out, sigma=sigma, alpha=alpha, n0=n0, n=n, num_classes=num_classes)
    print_run(run, console)
    console.print(f"Wrote {out}", highlight=False, markup=False, soft_wrap=True)
