"""What an executor asks of noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray


class Stream(Protocol):
    """The noise that belongs to a key, in order: two fills of half the size are one of the whole."""

    def fill(self, out: torch.Tensor) -> None:
        """The next values, into a contiguous float32 tensor."""


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

    def error(self, values: int) -> float:
        """At most the total variation distance between so many independent values as drawn and as the proof wants."""

    def streams(self, x: torch.Tensor, device: torch.device) -> Callable[[bytes], Stream]:
        """What gives the noise of a key for copies of x, as a device of this type generates it."""

    def add(self, x: torch.Tensor, rows: torch.Tensor) -> None:
        """Turns rows of noise into noisy copies of x, in place."""
