"""Noise that leaves no trace of floating point: integers from the exactly rounded Gaussian.

Let the smoothed classifier round its input to the grid of multiples of 1/levels (255 for 8-bit images). The rounding
is part of the classifier, so the theorem about real Gaussian noise holds for it, for every real perturbation. For
x = i/levels, `round(x + noise) = (i + round(noise))/levels`: it is enough to draw integers, and the classifier gets
`(i + k)/levels`, one float32 for each integer, whichever x and noise it came from (Voráček and Hein, 2023). A float32
input stands for the grid point of which it is the nearest float.

The draws are exact but for an error that `thresholds` bounds; it is taken off α.

A uniform 64-bit integer is drawn in two parts. Its first 16 bits settle most draws by a table; where a threshold lies
among the integers that begin with them, the other 48 bits decide. Both are bits of their own for each value (`bits`),
so what is drawn is the integer, whether all of it is looked at or not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from smoothcert.checks import check_sigma, check_whole
from smoothcert.errors import InputError
from smoothcert.sampling.noise.base import Centre, Layout, Piece, Values, few_rows, in_rows, kernels, lay_out
from smoothcert.sampling.noise.bits import bits_at, halves, pairs, rows_of_bits
from smoothcert.sampling.noise.philox import philox
from smoothcert.sampling.noise.thresholds import OPEN, Table, table, threshold

if TYPE_CHECKING:
    import torch

LEAST, MOST = 0.5, 4096.0  # steps of the grid in a standard deviation: the proof's limit, and that of patience
UNDECIDED = 1e-6  # steps of the grid within which float64 does not decide
FURTHEST = 2**22 - 10 * MOST
"""How many steps from 0 an input may be. No draw is as far as 10 MOST steps, so that an input and its draw add up to
|m| < 2²². There float32 keeps integers exact and their quotients apart: m/levels is rounded once, and once more times
levels, which moves it by at most |m| (2 · 2⁻²⁴ + 2⁻⁴⁸) < ½, and m is the nearest integer still."""


@dataclass(frozen=True)
class Grid:
    """Gaussian noise of standard deviation σ, rounded to the grid together with the input."""

    sigma: float
    levels: int
    name = "grid"

    def __post_init__(self) -> None:
        steps = check_sigma(self.sigma) * check_whole("levels", self.levels, 1, 2**24)
        if not LEAST <= steps <= MOST:
            raise InputError(
                f"sigma = {self.sigma:g} is {steps:.3g} steps of 1/{self.levels}, and grid noise takes {LEAST:g} to "
                f"{MOST:g}: change levels, or use gaussian noise."
            )

    def check(self, x: NDArray[np.float32], input_id: str) -> None:
        self.check_size(x, input_id)
        if not _is_on_grid(x, self.levels):
            raise InputError(
                f"input {input_id} has values that are no multiples of 1/{self.levels}, and grid noise certifies only "
                f"those: round the input, change levels, or use gaussian noise."
            )

    def check_size(self, x: NDArray[np.float32], input_id: str) -> None:
        if float(np.abs(x).max()) * self.levels > FURTHEST:
            raise InputError(
                f"input {input_id} has values beyond ±{FURTHEST / self.levels:.6g}, where float32 does not tell the "
                f"multiples of 1/{self.levels} apart: scale the input down, take fewer levels, or use gaussian noise."
            )

    def error(self, values: int) -> float:
        return math.nextafter((len(self._table.edges) + 1) * values / 2**64, math.inf)

    def centre(self, x: NDArray[np.float32]) -> Centre:
        """The number of the nearest grid point; for an x off the grid also how far it is from there."""
        nearest = _nearest(x, self.levels)
        return Centre(nearest, None if _is_on_grid(x, self.levels) else x.astype(np.float64) * self.levels - nearest)

    def draw(self, pieces: Sequence[Piece], out: Values) -> None:
        start = 0
        for on_grid, group in groupby(pieces, key=lambda piece: piece.centre.shift is None):
            together = list(group)
            stop = start + sum(piece.rows for piece in together)
            (self.draw_exact if on_grid else self._draw_shifted)(together, out[start:stop])
            start = stop

    def draw_exact(self, pieces: Sequence[Piece], out: Values) -> None:
        """(i + k)/levels in float32, as the readers of 8-bit images make it; the integers are below 2²⁴."""
        layout, rows, levels = lay_out(pieces), in_rows(out), np.float32(self.levels)
        if not isinstance(rows, np.ndarray):
            by_torch(layout, self, rows)
        elif compiled := kernels(rows.size):
            compiled.grid(layout.keys, layout.spans, layout.array(), levels, tuple(self._table), rows)
        else:
            (names, which), centres = layout.names(), layout.array()
            for part in few_rows(rows):
                rows[part] = (centres[which[part]] + by_numpy(names[part], rows.shape[1], self._table)) / levels

    def _draw_shifted(self, pieces: Sequence[Piece], out: Values) -> None:
        """round(x + noise) for an x off the grid, as predictions and attacks need it: by the CPU for all devices."""
        start = 0
        for key, first, count, centre in pieces:
            assert centre.shift is not None
            shape, size = (count, *centre.shift.shape), centre.shift.size
            words: NDArray[np.uint64] = philox(key).bit_generator.random_raw((first + count) * size)
            draws = self._shifted(words[first * size :].reshape(shape), centre.shift)
            nearest = centre.values if isinstance(centre.values, np.ndarray) else centre.values.cpu().numpy()
            noisy, rows = (nearest + draws.astype(np.float32)) / np.float32(self.levels), out[start : start + count]
            if isinstance(rows, np.ndarray):
                rows[...] = noisy
            else:
                import torch

                rows.copy_(torch.from_numpy(noisy))
            start += count

    def _shifted(self, words: NDArray[np.uint64], shift: NDArray[np.float64]) -> NDArray[np.float64]:
        """round(x + noise) less the grid point next to x, `shift` = f steps from there.

        P(K < k) = Φ((k − ½ − f)/s), and K is drawn as on the grid: it is the number of thresholds
        `round(2⁶⁴ Φ((k − ½ − f)/s))` at most U, a uniform 64-bit integer, with the same error. As each f has its own
        thresholds, they are not tabulated. s Φ⁻¹((U + ½)/2⁶⁴) + f in float64 tells K where it is not within 10⁻⁶ of
        the middle between two integers, its error being a thousandth of that; where it is, the threshold is computed.
        """
        tails = np.minimum(words, ~words)  # the smaller tail, so that float64 holds it to all its digits
        size = -ndtri((tails + 0.5) / 2.0**64) * (self.sigma * self.levels)
        real = np.where(words >> np.uint64(63), size, -size) + shift
        draws: NDArray[np.float64] = np.rint(real)
        below = np.floor(real)
        for at in zip(*np.nonzero(abs(real - below - 0.5) < UNDECIDED), strict=True):
            edge = threshold(below[at] + 0.5, shift[at[1:]], self.sigma, self.levels)
            draws[at] = below[at] + (int(words[at]) >= edge)
        return draws

    @property
    def _table(self) -> Table:
        return table(self.sigma, self.levels)


def by_numpy(names: NDArray[np.int64], size: int, table: Table) -> NDArray[np.float32]:
    """Rows of draws."""
    (cells,) = rows_of_bits(names, size, (halves,), np)
    values: NDArray[np.float32] = table.settled[cells].astype(np.float32)
    row, value = np.nonzero(values == OPEN)
    words = cells[row, value] << 48 | bits_at(names[row], value, size, pairs)
    values[row, value] = table.search(words.view(np.uint64))
    return values


def by_torch(layout: Layout, noise: Grid, out: torch.Tensor) -> None:
    """The same in tensor operations, as many for a batch as for a row: all 64 bits of every draw are made.

    Thresholds and words lose 2⁶³, which keeps their order and makes them signed.
    """
    import torch

    names, centres = layout.on_device(out.device)
    cells, rest = rows_of_bits(names, out.shape[1], (halves, pairs), torch)
    edges = _edges_on(noise, out.device)
    draws = torch.searchsorted(edges, (cells - 2**15 << 48) | rest, right=True) - len(edges) // 2
    levels = torch.full((), float(noise.levels), device=out.device)  # CUDA would multiply by its reciprocal
    torch.div(centres + draws, levels, out=out)


@lru_cache(maxsize=8)
def _edges_on(noise: Grid, device: torch.device) -> torch.Tensor:
    import torch

    edges = table(noise.sigma, noise.levels).edges ^ np.uint64(2**63)
    return torch.from_numpy(edges.view(np.int64)).to(device)


def _nearest(x: NDArray[np.float32], levels: int) -> NDArray[np.float32]:
    """The number i of the nearest grid point."""
    nearest: NDArray[np.float32] = np.rint(x * np.float32(levels))
    return nearest


def _is_on_grid(x: NDArray[np.float32], levels: int) -> bool:
    """Is every value of x the float32 nearest to a multiple of 1/levels? The CPU divides as IEEE 754 wants it."""
    return np.array_equal(_nearest(x, levels) / np.float32(levels), x)
