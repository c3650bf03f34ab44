"""Arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smoothcert.errors import InputError

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="package.module:factory, an .onnx file, or a built-in name such as cifar_resnet20."
    ),
]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Image folder, .parquet, .npz, CIFAR-10 binary, package.module:dataset, or digits.",
    ),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run file.")]
Sigma = Annotated[float, typer.Option(help="Standard deviation of the noise, in units of the input.")]
Alpha = Annotated[float, typer.Option(help="Risk that a certificate is wrong, per input.")]
Weights = Annotated[Path | None, typer.Option(help="Weights: .pt, .pth.tar or .safetensors.")]
NumClasses = Annotated[int | None, typer.Option(help="Classes; found from the model's scores unless given.")]
Classes = Annotated[Path | None, typer.Option(help="File with a class name a line: the class order of a folder.")]
Resize = Annotated[int | None, typer.Option(help="Resize images: length of the shorter side.")]
Crop = Annotated[int | None, typer.Option(help="Crop images to a centred square of this side.")]
Skip = Annotated[int, typer.Option(help="Take every k-th input.")]
Limit = Annotated[int | None, typer.Option(help="Take at most this many inputs.")]
Seed = Annotated[int, typer.Option(help="Names the noise; the same seed draws the same noise.")]
Batch = Annotated[str, typer.Option(help="Rows a forward pass, or auto.")]
Engine = Annotated[str, typer.Option(help="torch, onnx (ONNX Runtime on the CPU), or auto.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")]


def numbers(text: str) -> list[float]:
    """Numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{text!r} is no list of numbers such as 0.25,0.5: separate them by commas.") from None


def batch_size(text: str) -> int | str:
    """--batch as a number where it is one; the engine room refuses anything but numbers and auto."""
    return int(text) if text.isascii() and text.isdigit() else text
