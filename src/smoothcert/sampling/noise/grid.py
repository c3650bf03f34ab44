"""Noise that leaves no trace of floating point: integers from the exactly rounded Gaussian.

Let the smoothed classifier round its input to the grid of multiples of 1/levels (255 for 8-bit images). The rounding
is part of the classifier, so the theorem about real Gaussian noise holds for it, for every real perturbation. For
x = i/levels, `round(x + noise) = (i + round(noise))/levels`: it is enough to draw integers, and the classifier gets
`(i + k)/levels`, one float32 for each integer, whichever x and noise it came from (Voráček and Hein, 2023). A float32
input stands for the grid point of which it is the nearest float.

The draws are exact but for an error that `thresholds` bounds; it is taken off α.

A uniform 64-bit integer is drawn in two parts. Its first 16 bits settle most draws by a table; where a threshold lies
among the integers that begin with them, the other 48 bits decide. On the CPU both parts come from NumPy's Philox under
the same key, with counters that never meet, and the j-th undecided draw takes the j-th word of the second: which one
that is depends on the first parts only, of which the second are independent. Accelerators take 64 bits of Threefry for
each draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from smoothcert.checks import check_sigma, check_whole
from smoothcert.errors import InputError
from smoothcert.sampling.noise.base import Device, Same, Stream, Values, is_cpu
from smoothcert.sampling.noise.philox import philox
from smoothcert.sampling.noise.thresholds import threshold, thresholds

LEAST, MOST = 0.5, 4096.0  # steps of the grid in a standard deviation: the proof's limit, and that of patience
UNDECIDED = 1e-6  # steps of the grid within which float64 does not decide
FURTHEST = 2**22 - 10 * MOST
"""How many steps from 0 an input may be. No draw is as far as 10 MOST steps, so that an input and its draw add up to
|m| < 2²². There float32 keeps integers exact and their quotients apart: m/levels is rounded once, and once more times
levels, which moves it by at most |m| (2 · 2⁻²⁴ + 2⁻⁴⁸) < ½, and m is the nearest integer still."""
_SECOND = (0, 0, 0, 1)  # where the counters of the second parts begin: 2¹⁹²


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
        if float(np.abs(x).max()) * self.levels > FURTHEST:
            raise InputError(
                f"input {input_id} has values beyond ±{FURTHEST / self.levels:.6g}, where float32 does not tell the "
                f"multiples of 1/{self.levels} apart: scale the input down, take fewer levels, or use gaussian noise."
            )
        if not _is_on_grid(x, self.levels):
            raise InputError(
                f"input {input_id} has values that are no multiples of 1/{self.levels}, and grid noise certifies only "
                f"those: round the input, change levels, or use gaussian noise."
            )

    def error(self, values: int) -> float:
        return math.nextafter((len(_table(self).thresholds) + 1) * values / 2**64, math.inf)

    def streams(self, x: Values, device: Device) -> Callable[[bytes], Stream]:
        array = x if isinstance(x, np.ndarray) else x.cpu().numpy()
        if not _is_on_grid(array, self.levels):
            return partial(ShiftedStream, x=array, noise=self)
        on_device = PhiloxGridStream if is_cpu(device) else ThreefryGridStream
        return partial(on_device, table=_table(self))

    def add(self, x: Same, rows: Same) -> None:
        """(i + k)/levels in float32, as the readers of 8-bit images make it; the integers are below 2²⁴."""
        if isinstance(rows, np.ndarray):
            rows += _nearest(np.asarray(x), self.levels)
            rows /= np.float32(self.levels)
        else:
            import torch

            levels = torch.tensor(float(self.levels), device=rows.device)  # CUDA would multiply by its reciprocal
            rows.add_(torch.round(x * self.levels)).div_(levels)


def _nearest(x: NDArray[np.float32], levels: int) -> NDArray[np.float32]:
    """The number i of the nearest grid point."""
    nearest: NDArray[np.float32] = np.rint(x * np.float32(levels))
    return nearest


def _is_on_grid(x: NDArray[np.float32], levels: int) -> bool:
    """Is every value of x the float32 nearest to a multiple of 1/levels? The CPU divides as IEEE 754 wants it."""
    return np.array_equal(_nearest(x, levels) / np.float32(levels), x)


class _Table:
    """Thresholds, and what the first 16 bits of a draw settle: NaN where they settle nothing."""

    def __init__(self, noise: Grid) -> None:
        self.thresholds = thresholds(noise.sigma, noise.levels)
        first = np.arange(2**16, dtype=np.uint64) << np.uint64(48)
        low, high = self.search(first), self.search(first | np.uint64(2**48 - 1))
        self.settled = np.where(low == high, low, np.float32(np.nan))
        self.signed = (self.thresholds ^ np.uint64(2**63)).view(np.int64)  # divides int64 as thresholds divide uint64

    def search(self, words: NDArray[np.uint64]) -> NDArray[np.float32]:
        """The draw of each 64-bit word."""
        return (np.searchsorted(self.thresholds, words, side="right") - self.reach).astype(np.float32)

    @property
    def reach(self) -> int:
        """The largest draw."""
        return len(self.thresholds) // 2


@lru_cache(maxsize=8)
def _table(noise: Grid) -> _Table:
    return _Table(noise)


class PhiloxGridStream:
    """The draws of a key in order, on the CPU."""

    def __init__(self, key: bytes, table: _Table) -> None:
        self._first, self._second = philox(key), philox(key, _SECOND)
        self._table, self._left = table, np.empty(0, dtype=np.uint16)

    def fill(self, out: Values) -> None:
        """The next draws, into a contiguous float32 array or tensor."""
        values = np.asarray(out)
        cells = self._cells(values.size)
        np.take(self._table.settled, cells.reshape(values.shape), out=values, mode="clip")
        open_at = np.flatnonzero(np.isnan(values))
        words = cells[open_at].astype(np.uint64) << np.uint64(48) | _words(self._second, len(open_at)) >> np.uint64(16)
        np.put(values, open_at, self._table.search(words))

    def _cells(self, size: int) -> NDArray[np.uint16]:
        """16 bits for each draw, four draws a word; what is left of the last word is kept."""
        words = _words(self._first, max(0, -(-(size - len(self._left)) // 4)))
        fresh = words.astype("<u8", copy=False).view("<u2")
        cells = np.concatenate([self._left, fresh]) if len(self._left) else fresh
        self._left = cells[size:]
        return cells[:size]


def _words(generator: np.random.Generator, size: int) -> NDArray[np.uint64]:
    words: NDArray[np.uint64] = generator.bit_generator.random_raw(size)
    return words


class ThreefryGridStream:
    """The draws of a key in order, as accelerators make them: 64 bits each."""

    def __init__(self, key: bytes, table: _Table) -> None:
        self._key, self._table, self._position = key, table, 0

    def fill(self, out: Values) -> None:
        """The next draws, into a contiguous float32 array or tensor."""
        import torch

        from smoothcert.sampling.noise.threefry import integers

        tensor = torch.as_tensor(out)
        words = integers(self._key, self._position, tensor.numel(), tensor.device)
        edges = torch.from_numpy(self._table.signed).to(tensor.device)
        tensor.copy_((torch.searchsorted(edges, words, right=True) - self._table.reach).view(tensor.shape))
        self._position += tensor.numel()


class ShiftedStream:
    """round(x + noise) less the grid point next to x, for an x off the grid, as predictions and attacks need it.

    There P(K < k) = Φ((k − ½ − f)/s), f the steps from the grid point to x, and K is drawn as on the grid: it is the
    number of thresholds `round(2⁶⁴ Φ((k − ½ − f)/s))` at most U, a uniform 64-bit integer, with the same error. As each
    f has its own thresholds, they are not tabulated. s Φ⁻¹((U + ½)/2⁶⁴) + f in float64 tells K where it is not within
    10⁻⁶ of the middle between two integers, its error being a thousandth of that; where it is, the threshold itself is
    computed. The draws come from the CPU's generator on all devices.
    """

    def __init__(self, key: bytes, x: NDArray[np.float32], noise: Grid) -> None:
        self._generator, self._noise = philox(key), noise
        self._shift = x.astype(np.float64) * noise.levels - _nearest(x, noise.levels)

    def fill(self, out: Values) -> None:
        """The next draws, for whole copies of x, into a contiguous float32 array or tensor."""
        words = _words(self._generator, math.prod(out.shape)).reshape(tuple(out.shape))
        tails = np.minimum(words, ~words)  # the smaller tail, so that float64 holds it to all its digits
        size = -ndtri((tails + 0.5) / 2.0**64) * (self._noise.sigma * self._noise.levels)
        real = np.where(words >> np.uint64(63), size, -size) + self._shift
        draws, below = np.rint(real), np.floor(real)
        for at in zip(*np.nonzero(abs(real - below - 0.5) < UNDECIDED), strict=True):
            edge = threshold(below[at] + 0.5, self._shift[at[1:]], self._noise.sigma, self._noise.levels)
            draws[at] = below[at] + (int(words[at]) >= edge)
        if isinstance(out, np.ndarray):
            out[...] = draws
        else:
            import torch

            out.copy_(torch.from_numpy(draws))
