"""Floating-point Gaussian noise: x + σ · z, each operation rounded to float32.

The theorems speak of real numbers. Here z is one of finitely many floats and the sum is rounded, by an amount that
depends on x; a model that looks for such traces can obtain a certificate that is false (docs/sound-noise.md). What is
proved under this noise is proved up to that.

The bits are those of `bits`, the values those of `inverse`: the same on every processor and every accelerator, whether
Numba, NumPy or torch computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothcert.sampling.noise.base import Centre, Layout, Piece, Values, few_rows, in_rows, kernels, lay_out
from smoothcert.sampling.noise.bits import bits_at, halves, rows_of_bits, whole
from smoothcert.sampling.noise.inverse import TAIL, Table, U, normals, table

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Gaussian:
    """Noise of standard deviation σ, and its sum with the input, in float32."""

    sigma: float
    name = "gaussian"
    levels = None

    def check(self, x: NDArray[np.float32], input_id: str) -> None:
        """Every input is welcome."""

    check_size = check

    def error(self, values: int) -> float:
        """None is known, and none is taken off α."""
        return 0.0

    def centre(self, x: NDArray[np.float32]) -> Centre:
        """The input itself."""
        return Centre(x)

    def draw(self, pieces: Sequence[Piece], out: Values) -> None:
        layout, rows, sigma = lay_out(pieces), in_rows(out), np.float32(self.sigma)
        if not isinstance(rows, np.ndarray):
            by_torch(layout, self.sigma, rows)
        elif compiled := kernels(rows.size):
            compiled.gaussian(layout.keys, layout.spans, layout.array(), sigma, table()[1:], rows)
        else:
            (names, which), centres = layout.names(), layout.array()
            for part in few_rows(rows):
                rows[part] = centres[which[part]] + sigma * by_numpy(names[part], rows.shape[1])


def by_numpy(names: NDArray[np.int64], size: int) -> NDArray[np.float32]:
    """Rows of standard normal values; more bits are drawn only for those that take them."""
    (words,) = rows_of_bits(names, size, (whole,), np)
    values: NDArray[np.float32] = normals(words, 0, table(), np)
    row, value = np.nonzero(words & U < TAIL)
    if len(row):
        extra = bits_at(names[row], value, size, halves)
        values[row, value] = normals(words[row, value], extra, table(), np)
    return values


def by_torch(layout: Layout, sigma: float, out: torch.Tensor) -> None:
    """The same in tensor operations, as many for a batch as for a row; nothing waits for the device."""
    import torch

    names, centres = layout.on_device(out.device)
    words, extra = rows_of_bits(names, out.shape[1], (whole, halves), torch)
    torch.add(centres, normals(words, extra, _table_on(out.device), torch) * sigma, out=out)


@lru_cache(maxsize=8)
def _table_on(device: torch.device) -> Table:
    import torch

    return Table(*(torch.from_numpy(part).to(device) for part in table()))
