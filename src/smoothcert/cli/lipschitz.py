"""smoothcert lipschitz"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, get_args

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from smoothcert.cli import arguments as arg
from smoothcert.cli.nouns import Given, derived
from smoothcert.cli.opened import Loading
from smoothcert.cli.progress import Meter
from smoothcert.data import Dataset
from smoothcert.errors import InputError
from smoothcert.lipschitz import LipschitzBound, product
from smoothcert.lipschitz.constant import NEEDS_LAYERS, local_constants
from smoothcert.lipschitz.product import Method
from smoothcert.models import load_model
from smoothcert.modules import require_module
from smoothcert.options import make
from smoothcert.plan import Selection
from smoothcert.plan.selection import INPUTS
from smoothcert.plan.setting import ENGINE
from smoothcert.text import counted

CHUNK = 16


@derived(without=("limit", "shard"), selection=Selection, loading=Loading)
def lipschitz(
    model: arg.Model,
    selection: Given,
    loading: Given,
    data: Annotated[str | None, typer.Argument(metavar="DATA", help="Inputs to search near, as for certify.")] = None,
    shape: Annotated[
        str | None, typer.Option(help="Shape of an input, as 3,32,32; that of the data where there is some.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Search near at most this many inputs.", rich_help_panel=INPUTS)] = 100,
    num_classes: Annotated[
        int | None, typer.Option(help="Classes of a built-in network; its own unless given.", rich_help_panel=ENGINE)
    ] = None,
) -> None:
    """Bound the ℓ2 Lipschitz constant of a network's scores, layer by layer, and search for it near inputs.

    Example: `smoothcert lipschitz digits_lipschitz digits --limit 20`
    """
    console, how = Console(), make(Loading, loading)
    loaded = load_model(model, weights=how.weights, num_classes=num_classes, device=how.device)
    module = require_module(loaded, NEEDS_LAYERS).eval()
    dataset = None if data is None else how.dataset(data)
    if shape is None and dataset is None:
        raise InputError("the bound depends on the shape of an input: pass --shape such as 3,32,32, or give data.")
    size = arg.whole_numbers(shape) if shape else dataset[0].array.shape if dataset else ()
    bounds = {method: product(module, size, method, inside=True) for method in get_args(Method)}
    _print_layers(bounds["fourier"], console)
    table = Table(title="Constant of the whole network", title_justify="left", min_width=60)
    for heading in ("method", "basis", "constant"):
        table.add_column(heading, justify="right" if heading == "constant" else "left")
    for method, bound in bounds.items():
        table.add_row(f"product, {method}", bound.basis, f"{bound.value:.6g}")
    own = getattr(module, "lipschitz_bound", None)
    if callable(own):
        table.add_row("the design's own", "proved", f"{own():.6g}")
    if dataset is not None:
        found = _search(module, dataset, make(Selection, {**selection, "limit": limit}).rows(dataset))
        for name, value in (("mean", np.mean(found)), ("largest", np.max(found))):
            table.add_row(f"local, {name} of {counted(len(found), 'input')}", "estimated", f"{value:.6g}")
    console.print(table)
    if dataset is not None:
        console.print(
            "A local estimate is the steepest slope found within 0.15 of an input: the constant is not below it and "
            "may be far above."
        )


def _print_layers(bound: LipschitzBound, console: Console) -> None:
    table = Table(title="Layers (fourier, proved)", title_justify="left", min_width=60)
    for heading in ("layer", "kind"):
        table.add_column(heading, overflow="fold")
    for heading in ("norm", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    for layer in bound.layers:
        share = f"{layer.share:.1%}" if layer.share >= 0 else "shrinks"
        table.add_row(layer.name, layer.kind, f"{layer.norm:.6g}", share)
    console.print(table)


def _search(module: torch.nn.Module, dataset: Dataset, rows: Sequence[int]) -> list[float]:
    found: list[float] = []
    with Meter("searching", unit="inputs") as meter:
        for start in range(0, len(rows), CHUNK):
            found += local_constants(module, [dataset[row].array for row in rows[start : start + CHUNK]]).tolist()
            meter(len(found), len(found) / len(rows))
    return found
