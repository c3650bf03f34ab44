"""smoothcert train"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from smoothcert.cli import arguments as arg
from smoothcert.cli.nouns import Given, derived
from smoothcert.cli.progress import Meter
from smoothcert.data import open_data
from smoothcert.training import Epoch, open_training_data
from smoothcert.training import train as run_training
from smoothcert.training.configuration import Recipe
from smoothcert.training.state import STATE


@derived(recipe=Recipe)
def train(
    arch: Annotated[
        str,
        typer.Argument(
            metavar="ARCH", help="A built-in architecture, such as cifar_resnet20, or package.module:factory."
        ),
    ],
    data: arg.Data,
    recipe: Given,
    out: Annotated[Path, typer.Option(help="The folder of the training.")],
    validation: Annotated[
        str | None, typer.Option(metavar="DATA", help="Data that judge each epoch, by at most 1 000 of their inputs.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Weights to start from: .pt, .pth.tar or .safetensors.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help="An option of ARCH, as width=64; repeatable.")
    ] = None,
    device: arg.Device = "auto",
    resize: arg.Resize = None,
    crop: arg.Crop = None,
    follow_links: arg.FollowLinks = False,
) -> None:
    """Train a network under noise. Stopped at any moment, the same command goes on to the same weights.

    Example: `smoothcert train cifar_small cifar10/train.parquet --sigma 0.5 --out small-0.5`
    """
    console = Console()
    how: dict[str, Any] = {"resize": resize, "crop": crop, "follow_links": follow_links}
    with Meter("training", "images") as meter:
        try:
            log = run_training(
                arch,
                open_training_data(data, **how),
                out=out,
                validation=None if validation is None else open_data(validation, **how),
                weights=weights,
                options=arg.settings(option or []),
                device=device,
                **recipe,
                on_progress=meter,
            )
        except KeyboardInterrupt:
            stopped(meter, out, console)
    print_log(log, console)
    best = out / "best.safetensors"
    say(
        f"Weights are in {best}: smoothcert certify {arch} DATA --weights {best} --sigma {recipe['sigma']:g}",
        console,
    )


def stopped(meter: Meter, out: Path, console: Console) -> NoReturn:
    """A training was interrupted."""
    meter.bar.stop()
    if (out / STATE).is_file():
        say(f"Stopped. {out} keeps the epochs that are done: run the same command to go on.", console)
    else:
        say("Stopped before an epoch was done: run the same command to start again.", console)
    raise typer.Exit(1)


def say(text: str, console: Console) -> None:
    """A sentence as it is."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def print_log(log: list[Epoch], console: Console) -> None:
    """A row for each epoch."""
    table = Table("epoch", "loss", "accuracy", "validation", "seconds")
    for epoch in log:
        validation = "" if epoch.validation is None else f"{epoch.validation:.1%}"
        table.add_row(
            str(epoch.epoch), f"{epoch.loss:.3f}", f"{epoch.accuracy:.1%}", validation, f"{epoch.seconds:.0f}"
        )
    console.print(table)
