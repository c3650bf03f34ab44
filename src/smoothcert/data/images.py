"""Encoded images to pixels, resized and cropped as torchvision's `Resize` and `CenterCrop` do."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.ImageFile import ImageFile

from smoothcert.errors import InputError

EXTENSIONS = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
# Pillow opens more, among them EPS, for which it starts another program.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MAX_PIXELS, _MAX_INPUT = 1 << 26, 1 << 24
_MAX_WEBP = 1 << 25
"""Its decoder makes four of each."""

_MAX_SCANS, _SCAN = 100, b"\xff\xda"
_TILE = (322, 323)
"""The width and the height of a TIFF's tiles (TIFF 6.0, section 15)."""


@dataclass(frozen=True)
class Preprocessing:
    """The shorter side to `resize` pixels, then the central `crop`×`crop` square; None leaves a step out."""

    resize: int | None = None
    crop: int | None = None

    def __post_init__(self) -> None:
        for option, size in (("resize", self.resize), ("crop", self.crop)):
            if size is not None and size < 1:
                raise InputError(f"--{option} is a number of pixels, at least 1, not {size}.")

    def __str__(self) -> str:
        steps = {"resize": self.resize, "crop": self.crop}
        return " ".join(f"{name}={size}" for name, size in steps.items() if size is not None) or "none"

    def __call__(self, image: Image.Image) -> Image.Image:
        if self.resize is not None:
            short = min(image.size)
            width, height = (int(self.resize * side / short) for side in image.size)
            if width * height > _MAX_PIXELS:
                raise InputError(f"larger than {_MAX_PIXELS} pixels when resized: make it less narrow, or remove it")
            # Pillow's resampling filters widen with the scale: it is antialiased.
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        if self.crop is not None:
            left, top = (round((side - self.crop) / 2) for side in image.size)
            if min(left, top) < 0:
                raise InputError(f"smaller than the crop of {self.crop} pixels: give a `resize` of at least that")
            image = image.crop((left, top, left + self.crop, top + self.crop))
        return image


def decode(source: Path | bytes, name: str, preprocessing: Preprocessing) -> NDArray[np.uint8]:
    """The pixels of an encoded image as (height, width, RGB)."""
    try:
        with Image.open(source if isinstance(source, Path) else io.BytesIO(source), formats=_FORMATS) as image:
            most = _MAX_WEBP if image.format == "WEBP" else _MAX_PIXELS
            if max(image.width * image.height, _of_tile(image)) > most:
                raise InputError(f"larger than {most} pixels: shrink it")
            if _scans(image) > _MAX_SCANS:
                raise InputError(f"of more than {_MAX_SCANS} scans: save it anew")
            # Pillow would cut 16-bit colours down to 8 bits in silence: only the name of their layout tells.
            if image.mode.startswith(("I", "F")) or any(";16" in str(tile[3]) for tile in image.tile):
                raise InputError("of more than 8 bits a channel: convert it to 8 bits")
            if preprocessing == Preprocessing():
                _check_input(image)  # before its pixels take memory
            ready = preprocessing(image.convert("RGB"))
            _check_input(ready)
            return np.asarray(ready)
    except Image.DecompressionBombError as error:
        raise InputError(f"The image {name} is larger than {_MAX_PIXELS} pixels: shrink it.") from error
    except InputError as error:
        raise InputError(f"The image {name} is {error}.") from error
    except MemoryError:
        raise InputError(f"The image {name} does not fit into memory: shrink it.") from None
    except Exception as error:  # on damaged bytes a decoder raises whatever it stumbled on
        raise InputError(f"The image {name} cannot be decoded: replace or remove it.") from error


def _of_tile(image: Image.Image) -> int:
    """The pixels of a TIFF's tile, which may be larger than the image."""
    tags = getattr(image, "tag_v2", {})
    return math.prod(int(tags.get(tag, 1)) for tag in _TILE)


def _scans(image: Image.Image) -> int:
    """How often a JPEG goes over its pixels: a few kilobytes of it can do so thousands of times."""
    if image.format not in ("JPEG", "MPO") or not isinstance(image, ImageFile) or image.fp is None:
        return 1
    file, place = image.fp, image.fp.tell()
    file.seek(0)
    scans = sum(part.count(_SCAN) for part in iter(partial(file.read, 1 << 20), b""))
    file.seek(place)
    return scans


def _check_input(image: Image.Image) -> None:
    if image.width * image.height > _MAX_INPUT:
        raise InputError(f"larger than {_MAX_INPUT} pixels as an input: give a `resize` and a `crop`")
