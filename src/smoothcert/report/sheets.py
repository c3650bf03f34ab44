"""The inputs of a run and their first noisy copies, as sheets of small pictures."""

from __future__ import annotations

import warnings
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from smoothcert.errors import RunError
from smoothcert.sampling.blocks import Phase, input_digest, noise_key
from smoothcert.sampling.identity import Identity
from smoothcert.sampling.noise import Piece, open_noise
from smoothcert.store.run import Run
from smoothcert.store.thumbnails import SIDE

COLUMNS, CELLS = 16, 256
LOSSLESS_PIXELS = 2**18


@dataclass(frozen=True)
class Sheets:
    """Sheets of `CELLS` pictures, `COLUMNS` a row, as data URIs. `whole` says that the pictures were not shrunk, so
    that the noise is the very noise of the run: the first draw of estimation block 0.
    """

    width: int
    height: int
    values: int
    whole: bool
    clean: list[str]
    noisy: list[str]


def sheets_of(run: Run) -> Sheets | None:
    """Those of the complete inputs, or None where the run holds no pictures."""
    images = list(_thumbnails(run))
    if not images or any(image is None for image in images):
        return None
    if len({image.shape for image in images if image is not None}) > 1:
        raise RunError(f"{run.path} has thumbnails of different sizes: certify again into a new file.")
    pixels = np.stack([image for image in images if image is not None])
    height, width, channels = pixels.shape[1:]
    lossless = pixels.size <= LOSSLESS_PIXELS
    parts = [slice(start, start + CELLS) for start in range(0, len(pixels), CELLS)]
    return Sheets(
        width=width,
        height=height,
        values=height * width * channels,
        whole=max(height, width) < SIDE or _is_input(run, pixels[0]),
        clean=[_sheet(pixels[part], lossless) for part in parts],
        noisy=[_sheet(_noisy(run, pixels[part], run.ids[part]), lossless) for part in parts],
    )


def _thumbnails(run: Run) -> Iterator[NDArray[np.uint8] | None]:
    """Height × width × channels, in the order of the run's inputs."""
    with run.file() as file:
        for record in run.inputs:
            stored = file.thumbnail(record.position)
            yield None if stored is None else _decode(stored, run)


def _decode(stored: bytes, run: Run) -> NDArray[np.uint8]:
    try:
        with warnings.catch_warnings(), Image.open(BytesIO(stored), formats=["PNG"]) as image:
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if max(image.size) > SIDE or image.mode not in ("L", "RGB"):
                raise ValueError(f"{image.mode} of {image.size}")
            return np.atleast_3d(np.asarray(image))
    except Exception as error:  # on damaged bytes a decoder raises whatever it stumbled on
        raise RunError(f"{run.path} has a damaged thumbnail ({error}): certify again into a new file.") from None


def _noisy(run: Run, pixels: NDArray[np.uint8], ids: Sequence[str]) -> NDArray[np.uint8]:
    """The first draw of each input's first block, drawn again on this machine."""
    classifier, setting = run.plan.classifier, run.plan.setting
    if setting.seed is None:
        raise RunError(f"{run.path} has thumbnails, but no seed of their noise: certify again into a new file.")
    device = setting.engine.device if isinstance(setting.engine, Identity) else "cpu"
    noise = open_noise(classifier.noise, classifier.sigma, classifier.levels, setting.stream, device)
    steps = classifier.levels or 255
    inputs = np.rint(pixels.transpose(0, 3, 1, 2) * (steps / 255)).astype(np.float32, order="C") / np.float32(steps)
    copies = np.empty_like(inputs)
    keys = (noise_key(setting.seed, id, Phase.ESTIMATION, 0) for id in ids)
    noise.draw([Piece(key, 0, 1, noise.centre(x)) for key, x in zip(keys, inputs, strict=True)], copies)
    shown: NDArray[np.uint8] = np.round(255 * copies.clip(0, 1)).astype(np.uint8)
    return shown.transpose(0, 2, 3, 1)


def _is_input(run: Run, pixels: NDArray[np.uint8]) -> bool:
    """Is the first picture the first input itself? A picture of the largest size may have been shrunk to it."""
    return input_digest((pixels.transpose(2, 0, 1) / 255).astype(np.float32)) == run.inputs[0].digest


def _sheet(pixels: NDArray[np.uint8], lossless: bool) -> str:
    count, height, width, channels = pixels.shape
    rows = -(-count // COLUMNS)
    cells = np.zeros((rows * COLUMNS, height, width, channels), dtype=np.uint8)
    cells[:count] = pixels
    grid = cells.reshape(rows, COLUMNS, height, width, channels).swapaxes(1, 2).reshape(rows * height, -1, channels)
    buffer = BytesIO()
    Image.fromarray(grid.squeeze(2) if channels == 1 else grid).save(
        buffer, format="WEBP", lossless=lossless, quality=100 if lossless else 70
    )
    return f"data:image/webp;base64,{b64encode(buffer.getvalue()).decode()}"
