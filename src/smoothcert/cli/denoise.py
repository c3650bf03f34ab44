"""smoothcert denoise"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from smoothcert.cli import arguments as arg
from smoothcert.cli.nouns import Given, derived
from smoothcert.cli.progress import Meter
from smoothcert.cli.train import print_log, say, stopped
from smoothcert.data import open_data
from smoothcert.models import load_model
from smoothcert.modules import require_module
from smoothcert.training import open_training_data, train_denoiser
from smoothcert.training.denoise import Recipe


@derived(recipe=Recipe)
def denoise(
    model: arg.Model,
    data: arg.Data,
    recipe: Given,
    out: Annotated[Path, typer.Option(help="The folder of the training.")],
    weights: Annotated[Path | None, typer.Option(help="Weights of MODEL: .pt, .pth.tar or .safetensors.")] = None,
    validation: Annotated[
        str | None, typer.Option(metavar="DATA", help="Data that judge each epoch, by at most 1 000 of their inputs.")
    ] = None,
    device: arg.Device = "auto",
    resize: arg.Resize = None,
    crop: arg.Crop = None,
    follow_links: arg.FollowLinks = False,
) -> None:
    """Train a denoiser in front of a model that was not trained with noise; images need no labels.

    Example: `smoothcert denoise cifar_small cifar10/train.parquet --weights model.pt --sigma 0.25 --out denoiser`
    """
    console = Console()
    loaded = load_model(model, weights=weights, device=device)
    module = require_module(loaded, f"{model} is no torch module, and a denoiser is trained by its gradients.")
    how: dict[str, Any] = {"resize": resize, "crop": crop, "follow_links": follow_links, "labelled": False}
    with Meter("denoising", "images") as meter:
        try:
            log = train_denoiser(
                module,
                open_training_data(data, **how),
                out=out,
                validation=None if validation is None else open_data(validation, **how),
                **recipe,
                on_progress=meter,
            )
        except KeyboardInterrupt:
            stopped(meter, out, console)
    print_log(log, console)
    given = f" --weights {weights}" if weights else ""
    denoiser = out / "last.safetensors"
    say(
        f"The denoiser is {denoiser}: smoothcert certify {model} DATA{given} --denoiser {denoiser} "
        f"--sigma {recipe['sigma']:g}",
        console,
    )
