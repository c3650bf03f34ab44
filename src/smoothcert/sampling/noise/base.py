"""What an executor asks of noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Values: TypeAlias = "NDArray[np.float32] | torch.Tensor"
"""What noise is drawn into and added to. Arrays need no torch: a report shows the noise of a run without it."""

Same = TypeVar("Same", "NDArray[np.float32]", "torch.Tensor")
"""Two arrays, or two tensors."""

Device: TypeAlias = "torch.device | str"


class Stream(Protocol):
    """The noise that belongs to a key, in order: two fills of half the size are one of the whole."""

    def fill(self, out: Values) -> None:
        """The next values, into a contiguous float32 array or tensor."""


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

    def streams(self, x: Values, device: Device) -> Callable[[bytes], Stream]:
        """What gives the noise of a key for copies of x, as a device of this type generates it."""

    def add(self, x: Same, rows: Same) -> None:
        """Turns rows of noise into noisy copies of x, in place."""


def is_cpu(device: Device) -> bool:
    """Does the device generate noise as the CPU does?

    >>> is_cpu("cpu"), is_cpu("cuda:1")
    (True, False)
    """
    return str(device).partition(":")[0] == "cpu"
