"""Noise of stream version 1, with which runs of that version go on.

On the CPU each key seeds NumPy's Philox generator: its ziggurat gives Gaussian values, and its words give the draws of
a grid, 16 bits of one for each draw and 48 of another where those do not settle it. Accelerators get Threefry, with the
Box-Muller transform or thresholds. The rows of a key are one stream, to be drawn in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.sampling.noise.base import Device, Piece, Values, is_cpu
from smoothcert.sampling.noise.gaussian import Gaussian
from smoothcert.sampling.noise.grid import Grid
from smoothcert.sampling.noise.philox import philox
from smoothcert.sampling.noise.thresholds import OPEN, Table, table

_SECOND = (0, 0, 0, 1)  # where the counters of the second parts of grid draws begin: 2¹⁹²


class Stream(Protocol):
    """The noise that belongs to a key, in order: two fills of half the size are one of the whole."""

    def fill(self, out: Values) -> None:
        """The next values, into a contiguous float32 array or tensor."""


@dataclass(frozen=True)
class FirstGaussian(Gaussian):
    """x + σ · z for the noise of a type of device; tensors multiply and add at once, rounded once, where they can."""

    device: str = "cpu"

    def draw(self, pieces: Sequence[Piece], out: Values) -> None:
        for piece, rows in _fill(partial(NormalStream, device=self.device), pieces, out):
            if isinstance(rows, np.ndarray):
                x = np.asarray(piece.centre.values, dtype=np.float64)
                rows[...] = x + np.float64(np.float32(self.sigma)) * rows
            else:
                import torch

                torch.add(torch.as_tensor(piece.centre.values), rows, alpha=self.sigma, out=rows)


@dataclass(frozen=True)
class FirstGrid(Grid):
    """(i + k)/levels for the draws of a type of device."""

    device: str = "cpu"

    def draw_exact(self, pieces: Sequence[Piece], out: Values) -> None:
        of_device = PhiloxGridStream if is_cpu(self.device) else ThreefryGridStream
        for piece, rows in _fill(partial(of_device, table=table(self.sigma, self.levels)), pieces, out):
            if isinstance(rows, np.ndarray):
                rows += np.asarray(piece.centre.values)
                rows /= np.float32(self.levels)
            else:
                import torch

                levels = torch.full((), float(self.levels), device=rows.device)
                rows.add_(torch.as_tensor(piece.centre.values)).div_(levels)


def _fill(stream_of: Callable[[bytes], Stream], pieces: Sequence[Piece], out: Values) -> Iterator[tuple[Piece, Values]]:
    """Each piece with its rows filled; the rows before it are drawn, too, and thrown away."""
    start = 0
    for piece in pieces:
        rows, stream = out[start : start + piece.rows], stream_of(piece.key)
        for _ in range(piece.first):
            stream.fill(rows[:1])
        stream.fill(rows)
        yield piece, rows
        start += piece.rows


class NormalStream:
    """The standard normal values that belong to a key, in order: two fills of half the size are one of the whole."""

    def __init__(self, key: bytes, device: Device) -> None:
        self._key, self._position = key, 0
        self._generator = philox(key) if is_cpu(device) else None

    def fill(self, out: Values) -> None:
        """The next values, into a contiguous float32 array or tensor."""
        if self._generator is not None:
            self._generator.standard_normal(out=np.asarray(out), dtype=np.float32)
            return
        import torch

        from smoothcert.sampling.noise.threefry import normals

        tensor = torch.as_tensor(out)
        tensor.copy_(normals(self._key, self._position, tensor.numel(), tensor.device).view(tensor.shape))
        self._position += tensor.numel()


class PhiloxGridStream:
    """The draws of a key in order, on the CPU."""

    def __init__(self, key: bytes, table: Table) -> None:
        self._first, self._second = philox(key), philox(key, _SECOND)
        self._table, self._left = table, np.empty(0, dtype=np.uint16)

    def fill(self, out: Values) -> None:
        """The next draws, into a contiguous float32 array or tensor."""
        values = np.asarray(out)
        cells = self._cells(values.size)
        values[...] = self._table.settled[cells.reshape(values.shape)]
        open_at = np.flatnonzero(values == OPEN)
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

    def __init__(self, key: bytes, table: Table) -> None:
        self._key, self._table, self._position = key, table, 0

    def fill(self, out: Values) -> None:
        """The next draws, into a contiguous float32 array or tensor."""
        import torch

        from smoothcert.sampling.noise.threefry import integers

        tensor = torch.as_tensor(out)
        words = integers(self._key, self._position, tensor.numel(), tensor.device)
        edges = torch.from_numpy((self._table.edges ^ np.uint64(2**63)).view(np.int64)).to(tensor.device)
        tensor.copy_((torch.searchsorted(edges, words, right=True) - self._table.reach).view(tensor.shape))
        self._position += tensor.numel()
