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

import numpy as np
from numpy.typing import NDArray

from smoothcert.sampling.noise.base import Device, Same, Values, is_cpu
from smoothcert.sampling.noise.philox import philox


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

    def streams(self, x: Values, device: Device) -> Callable[[bytes], NormalStream]:
        return partial(NormalStream, device=device)

    def add(self, x: Same, rows: Same) -> None:
        """Tensors multiply and add at once, rounded once, where the processor can; so do arrays, by way of float64."""
        if isinstance(rows, np.ndarray):
            rows[...] = np.asarray(x, dtype=np.float64) + np.float64(np.float32(self.sigma)) * rows
        else:
            import torch

            torch.add(x, rows, alpha=self.sigma, out=rows)


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
