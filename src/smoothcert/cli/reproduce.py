"""smoothcert reproduce"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from smoothcert.experiments.counter_example import ALPHA, MORE, N, P, counter_example


class Claim(str, Enum):
    """What can be reproduced."""

    COUNTER_EXAMPLE = "counter-example"


def reproduce(name: Annotated[Claim, typer.Argument(help="The claim.")]) -> None:
    """Compute a claim of the paper again.

    Example: `smoothcert reproduce counter-example`
    """
    table = Table(
        title=f"Exact probability that the claimed radius is right, α = {ALPHA}: at least {1 - ALPHA} is wanted",
        title_justify="left",
    )
    table.add_column("method", no_wrap=True)
    for heading in (f"p, n={N}", f"p, n={MORE}", f"worst p, n={N}"):
        table.add_column(heading, justify="right")
    for row in counter_example():
        found = (row.coverage, row.coverage_of_more, row.worst)
        cells = [f"{value:.3f}" + ("" if value >= 1 - ALPHA else " ✗") for value in found]
        table.add_row(row.method, *cells)
        table.add_row("", "", "", "({})".format(", ".join(f"{v:.2f}" for v in row.worst_p)))
    console = Console()
    console.print(f"p = {P}", highlight=False)
    console.print(table, highlight=False)
