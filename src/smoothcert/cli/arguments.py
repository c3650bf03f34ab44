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
Estimated = Annotated[
    bool,
    typer.Option("--estimated", help="Also what rests on an estimated Lipschitz constant: that is no proof."),
]
Patience = Annotated[
    float,
    typer.Option(help="Seconds of a processor that bounds may take; what takes longer is refused after about one."),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")]
Resize = Annotated[int | None, typer.Option(help="Resize images: length of the shorter side.")]
FollowLinks = Annotated[bool, typer.Option("--follow-links", help="Follow links that lead out of an image folder.")]
Crop = Annotated[int | None, typer.Option(help="Crop images to a centred square of this side.")]


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
