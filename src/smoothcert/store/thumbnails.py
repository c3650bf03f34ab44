"""A small picture of an input, kept beside its votes."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 64


def thumbnail(array: NDArray[np.float32]) -> bytes | None:
    """A PNG of at most 64 × 64 for an image (H, W) or (1 or 3, H, W) with values in [0, 1]; None for anything else."""
    pixels = array[None] if array.ndim == 2 else array
    if pixels.ndim != 3 or pixels.shape[0] not in (1, 3):
        return None
    scaled = np.round(255 * pixels.clip(0, 1)).astype(np.uint8).transpose(1, 2, 0)
    image = Image.fromarray(scaled[:, :, 0] if scaled.shape[2] == 1 else scaled)
    image.thumbnail((SIDE, SIDE))
    buffer = BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()
