"""Floating-point Gaussian noise: x + σ · z, each operation rounded to float32.

The theorems speak of real numbers. Here z is one of finitely many floats and the sum is rounded, by an amount that
depends on x; a model that looks for such traces can obtain a certificate that is false (docs/sound-noise.md). What is
proved under this noise is proved up to that.

On the CPU each key seeds NumPy's Philox generator and its ziggurat. Accelerators get Threefry
and the Box-Muller transform.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import pi

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.sampling.noise.philox import philox
from smoothcert.sampling.noise.threefry import random_words


@dataclass(frozen=True)
class Gaussian:
    """Noise of standard deviation σ, and its sum with the input, in float32."""

    sigma: float
    name = "gaussian"
    levels = None

    def check(self, x: NDArray[np.float32], input_id: str) -> None:
        """Every input is welcome."""

    def error(self, values: int) -> float:
        """None is known, and none is taken off α."""
        return 0.0

    def streams(self, x: torch.Tensor, device: torch.device) -> Callable[[bytes], NormalStream]:
        return partial(NormalStream, device=device)

    def add(self, x: torch.Tensor, rows: torch.Tensor) -> None:
        torch.add(x, rows, alpha=self.sigma, out=rows)


class NormalStream:
    """The standard normal values that belong to a key, in order: two fills of half the size are one of the whole."""

    def __init__(self, key: bytes, device: torch.device) -> None:
        self._key, self._position = key, 0
        self._generator = philox(key) if device.type == "cpu" else None

    def fill(self, out: torch.Tensor) -> None:
        """The next values, into a contiguous float32 tensor."""
        if self._generator is not None:
            self._generator.standard_normal(out=out.numpy(), dtype=np.float32)
        else:
            out.copy_(threefry_normal(self._key, self._position, out.numel(), out.device).view(out.shape))
            self._position += out.numel()


def threefry_normal(key: bytes, position: int, size: int, device: torch.device) -> torch.Tensor:
    """Values `position … position + size − 1` of the key's stream from Threefry-4x32, on any device.

    Counter i gives values 4i … 4i + 3.
    """
    u, v, s, t = random_words(key, position // 4, -(-(position + size) // 4), device)
    values = torch.stack([*_box_muller(u, v), *_box_muller(s, t)], dim=-1).flatten()
    return values[position % 4 :][:size]


def _box_muller(u: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two independent normals from two words."""
    radius = torch.sqrt(-2 * torch.log(_uniform(u)))
    angle = 2 * pi * _uniform(v)
    return radius * torch.cos(angle), radius * torch.sin(angle)


def _uniform(word: torch.Tensor) -> torch.Tensor:
    """(k + ½) 2⁻³¹ from the low 31 bits: never 0, and small values keep their digits, so the tails are right."""
    return (word & 0x7FFFFFFF).to(torch.float32) * 2.0**-31 + 2.0**-32
