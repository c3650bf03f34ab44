"""smoothcert reproduce"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table


class Claim(str, Enum):
    """What can be reproduced."""

    COUNTER_EXAMPLE = "counter-example"


def reproduce(name: Annotated[Claim, typer.Argument(help="The claim.")]) -> None:
    """Compute a claim of the paper again.

    Example: `smoothcert reproduce counter-example`
    """
    from smoothcert.experiments.counter_example import ALPHA, N, P, counter_example

    table = Table(
        title=f"Probability that the statement is right: p = {P}, n = {N}, α = {ALPHA}; wanted ≥ {1 - ALPHA}",
        title_justify="left",
    )
    table.add_column("method")
    table.add_column("at p", justify="right")
    table.add_column("worst", justify="right")
    table.add_column("worst p")
    for row in counter_example():
        good = "" if row.worst >= 1 - ALPHA else "  ✗"
        worst_p = ", ".join(f"{v:.4f}" for v in row.worst_p)
        table.add_row(row.method, f"{row.coverage:.4f}", f"{row.worst:.4f}{good}", f"({worst_p})")
    Console().print(table, highlight=False)
