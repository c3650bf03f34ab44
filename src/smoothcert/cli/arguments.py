"""Arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smoothcert.data import Dataset
from smoothcert.errors import InputError
from smoothcert.scale import Cluster

INPUTS, NOISE, ENGINE = "Which inputs", "Noise", "Model and engine"
"""Panels of --help that several commands have."""

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
Noise = Annotated[
    str | None,
    typer.Option(
        help="grid or gaussian; grid for 8-bit images and digits unless given.",
        show_default=False,
        rich_help_panel=NOISE,
    ),
]
Levels = Annotated[
    int | None,
    typer.Option(help="Steps of the grid per unit of the input; the data's own unless given.", rich_help_panel=NOISE),
]
Alpha = Annotated[float, typer.Option(help="Risk that a certificate is wrong, per input.")]
Estimated = Annotated[
    bool,
    typer.Option("--estimated", help="Also what rests on an estimated Lipschitz constant: that is no proof."),
]
Weights = Annotated[Path | None, typer.Option(help="Weights: .pt, .pth.tar or .safetensors.", rich_help_panel=ENGINE)]
NumClasses = Annotated[
    int | None, typer.Option(help="Classes; found from the model's scores unless given.", rich_help_panel=ENGINE)
]
Classes = Annotated[
    Path | None,
    typer.Option(help="File with a class name a line: the class order of a folder.", rich_help_panel=INPUTS),
]
Resize = Annotated[int | None, typer.Option(help="Resize images: length of the shorter side.", rich_help_panel=INPUTS)]
Crop = Annotated[int | None, typer.Option(help="Crop images to a centred square of this side.", rich_help_panel=INPUTS)]
Skip = Annotated[int, typer.Option(help="Take every k-th input.", rich_help_panel=INPUTS)]
Limit = Annotated[int | None, typer.Option(help="Take at most this many inputs.", rich_help_panel=INPUTS)]
Seed = Annotated[int, typer.Option(help="Names the noise; the same seed draws the same noise.", rich_help_panel=NOISE)]
Batch = Annotated[str, typer.Option(help="Rows a forward pass, or auto.", rich_help_panel=ENGINE)]
Engine = Annotated[
    str,
    typer.Option(
        help="auto takes the fastest; torch, onnx (ONNX Runtime on the CPU), compile, torch+bf16.",
        rich_help_panel=ENGINE,
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.", rich_help_panel=ENGINE)]


def numbers(text: str) -> list[float]:
    """Numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{text!r} is no list of numbers such as 0.25,0.5: separate them by commas.") from None


def noise_of(noise: str | None, levels: int | None, dataset: Dataset) -> tuple[str, int | None]:
    """The kind of noise and the steps of its grid: as asked for, else the grid that the data lie on, if any."""
    if noise == "gaussian" and levels is not None:
        raise InputError("--levels says nothing with gaussian noise: leave it out.")
    steps = dataset.levels if levels is None else levels
    return noise or ("gaussian" if steps is None else "grid"), steps


def shard(text: str) -> tuple[int, int]:
    """--shard i/k as two numbers."""
    i, slash, k = text.partition("/")
    if not (slash and i.isascii() and i.isdigit() and k.isascii() and k.isdigit()):
        raise InputError(f"{text!r} is no shard such as 2/8: write its number, a slash, and how many there are.")
    return int(i), int(k)


def whole_numbers(text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{text!r} is no shape such as 3,32,32: separate whole numbers by commas.") from None


def settings(texts: list[str]) -> dict[str, int]:
    """--option name=number, any number of times."""
    pairs = [text.partition("=") for text in texts]
    for text, (name, _, value) in zip(texts, pairs, strict=True):
        if not (name.isidentifier() and value.isascii() and value.isdigit()):
            raise InputError(f"{text!r} is no option such as width=64: write its name, = and a whole number.")
    return {name: int(value) for name, _, value in pairs}


def constant(text: str) -> float | str:
    """--lipschitz as a number where it is one."""
    try:
        return float(text)
    except ValueError:
        return text


def batch_size(text: str) -> int | str:
    """--batch as a number where it is one; the engine room refuses anything but numbers and auto."""
    return int(text) if text.isascii() and text.isdigit() else text


def cluster_of(address: str | None, workers: int | None, cpus: int, gpus: float) -> Cluster | None:
    """The machines that draw; None is this process."""
    if address is not None or workers is not None:
        return Cluster(address, workers, cpus, gpus)
    if (cpus, gpus) != (1, 0):
        raise InputError("--cpus-per-worker and --gpus-per-worker say nothing without --cluster or --workers.")
    return None
