"""What an executor asks of noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Values: TypeAlias = "NDArray[np.float32] | torch.Tensor"
"""What noisy copies are written to. Arrays need no torch: a report shows the noise of a run without it."""

Device: TypeAlias = "torch.device | str"

PATIENCE = 2**25
"""Values that NumPy draws in about the time that it takes to load Numba."""

CACHED = 2**14
"""Values for which NumPy is not slowed down by memory."""


@dataclass(frozen=True, eq=False)
class Centre:
    """What draws are added to: an input as a kind of noise wants it, moved to the device that draws.

    `shift` is what was rounded away where the input lies off a grid: exact noise is for inputs on it.
    """

    values: Values
    shift: NDArray[np.float64] | None = None

    def moved(self, device: torch.device) -> Centre:
        """As a tensor on that device."""
        import torch

        values, cuda = torch.as_tensor(self.values), device.type == "cuda"
        return Centre((values.pin_memory() if cuda else values).to(device, non_blocking=cuda), self.shift)


class Piece(NamedTuple):
    """Rows `first … first + rows − 1` of the noise that belongs to a key, to be drawn around a centre."""

    key: bytes
    first: int
    rows: int
    centre: Centre


class Noise(Protocol):
    """One kind of noise at one strength: a small frozen dataclass, so that it can be sent to another process."""

    @property
    def name(self) -> str:
        """What users call it."""

    @property
    def sigma(self) -> float:
        """The standard deviation, in units of the input."""

    @property
    def levels(self) -> int | None:
        """Steps of the grid per unit of the input; None where there is no grid."""

    def check(self, x: NDArray[np.float32], input_id: str) -> None:
        """Refuses an input about which this noise certifies nothing."""

    def check_size(self, x: NDArray[np.float32], input_id: str) -> None:
        """Refuses an input to which this noise cannot be added as it should be, be it only for a prediction."""

    def error(self, values: int) -> float:
        """At most the total variation distance between so many independent values as drawn and as the proof wants."""

    def centre(self, x: NDArray[np.float32]) -> Centre:
        """What noise is to be drawn around."""

    def draw(self, pieces: Sequence[Piece], out: Values) -> None:
        """Noisy copies, those of one piece after those of another, into a contiguous float32 array or tensor."""


class Layout(NamedTuple):
    """Pieces by number: the four words of each key; first row, rows and centre; and the centres, each of them once."""

    keys: NDArray[np.uint32]
    spans: NDArray[np.int64]
    centres: list[Values]

    def array(self) -> NDArray[np.float32]:
        """The centres, one a row."""
        rows = [np.asarray(centre).reshape(1, -1) for centre in self.centres]
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    def names(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of each row the key's four words and the line of its noise; and which centre it has."""
        first, rows, which = self.spans.T
        lines = np.arange(rows.sum()) + np.repeat(first + rows - rows.cumsum(), rows)
        names = np.column_stack([np.repeat(self.keys.astype(np.int64), rows, axis=0), lines])
        return names, np.repeat(which, rows)

    def on_device(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """The names and each row's centre as tensors, copied there without waiting."""
        import torch

        numbers, cuda = torch.from_numpy(np.column_stack(self.names())), device.type == "cuda"
        numbers = (numbers.pin_memory() if cuda else numbers).to(device, non_blocking=cuda)
        centres = torch.stack([torch.as_tensor(centre).reshape(-1) for centre in self.centres])
        return numbers[:, :5], centres[numbers[:, 5]]


def lay_out(pieces: Sequence[Piece]) -> Layout:
    """The pieces as numbers, ready for arrays and kernels."""
    keys = np.frombuffer(b"".join([piece.key for piece in pieces]), dtype="<u4").reshape(-1, 4)
    centres = {id(piece.centre): piece.centre for piece in pieces}
    number = {name: i for i, name in enumerate(centres)}
    spans = np.array([(piece.first, piece.rows, number[id(piece.centre)]) for piece in pieces], dtype=np.int64)
    return Layout(keys, spans, [centre.values for centre in centres.values()])


def in_rows(out: Values) -> Values:
    """The same memory with a row for each copy: an array where NumPy reaches it, else a tensor."""
    array = out if isinstance(out, np.ndarray) else out.numpy() if is_cpu(out.device) else out
    return array.reshape(len(out), -1)


def few_rows(rows: NDArray[np.float32]) -> Iterator[slice]:
    """Parts of the rows that fit a cache."""
    step = max(1, CACHED // rows.shape[1])
    return (slice(start, start + step) for start in range(0, len(rows), step))


_drawn_by_numpy = 0


def kernels(values: int) -> ModuleType | None:
    """What draws so many values faster than NumPy: the compiled kernels, once they are worth the time to load them."""
    global _drawn_by_numpy
    _drawn_by_numpy += values
    return compiled_kernels() if _drawn_by_numpy > PATIENCE else None


@lru_cache(maxsize=1)
def compiled_kernels() -> ModuleType | None:
    """Those of Numba, where it is installed, can be loaded, and may compile."""
    try:
        from smoothcert.sampling.noise import kernels
    except (ImportError, OSError):
        return None
    return kernels if hasattr(kernels.gaussian, "py_func") else None


def is_cpu(device: Device) -> bool:
    """Does the device compute where NumPy does?

    >>> is_cpu("cpu"), is_cpu("cuda:1")
    (True, False)
    """
    return str(device).partition(":")[0] == "cpu"
