"""Standard normal noise as a pure function of 128-bit keys, generated on the device that uses it.

On the CPU each key seeds NumPy's Philox generator (Salmon et al., 2011) and its ziggurat. Accelerators get
Threefry-4x32 (same paper) in tensor operations and the Box-Muller transform: torch's own generators keep at most 64
bits of a seed.
"""

from __future__ import annotations

from math import pi

import numpy as np
import torch

_ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))
_PARITY = 0x1BD11BDA


class NormalStream:
    """The standard normal values that belong to a key, in order: two fills of half the size are one of the whole."""

    def __init__(self, key: bytes, device: torch.device) -> None:
        self._key, self._position = key, 0
        philox = np.random.Philox(key=np.frombuffer(key, dtype="<u8"))
        self._generator = np.random.Generator(philox) if device.type == "cpu" else None

    def fill(self, out: torch.Tensor) -> None:
        """The next values, into a contiguous float32 tensor on the device."""
        if self._generator is not None:
            self._generator.standard_normal(out=out.numpy(), dtype=np.float32)
        else:
            out.copy_(threefry_normal(self._key, self._position, out.numel(), out.device).view(out.shape))
            self._position += out.numel()


def threefry_normal(key: bytes, position: int, size: int, device: torch.device) -> torch.Tensor:
    """Values `position … position + size − 1` of the key's stream from Threefry-4x32, on any device.

    Counter i gives values 4i … 4i + 3.
    """
    words = torch.from_numpy(np.frombuffer(key, dtype="<i4").copy()).to(device)
    counter = torch.arange(position // 4, -(-(position + size) // 4), dtype=torch.int32, device=device)
    zero = torch.zeros_like(counter)
    u, v, s, t = threefry((counter, zero, zero, zero), words.unbind())
    values = torch.stack([*_box_muller(u, v), *_box_muller(s, t)], dim=-1).flatten()
    return values[position % 4 :][:size]


def threefry(
    counter: tuple[torch.Tensor, ...], key: tuple[torch.Tensor, ...], rounds: int = 20
) -> tuple[torch.Tensor, ...]:
    """Threefry-4x32 on int32 tensors: each round adds, rotates and xors two pairs of words."""
    schedule = [*key, key[0] ^ key[1] ^ key[2] ^ key[3] ^ _PARITY]
    x = [c + k for c, k in zip(counter, key, strict=True)]
    for i in range(rounds):
        a, b = _ROTATIONS[i % 8]
        first, second = (1, 3) if i % 2 == 0 else (3, 1)
        x[0] = x[0] + x[first]
        x[first] = _rotate(x[first], a) ^ x[0]
        x[2] = x[2] + x[second]
        x[second] = _rotate(x[second], b) ^ x[2]
        if i % 4 == 3:
            s = i // 4 + 1
            x = [w + schedule[(s + j) % 5] for j, w in enumerate(x)]
            x[3] = x[3] + s
    return tuple(x)


def _rotate(x: torch.Tensor, bits: int) -> torch.Tensor:
    return (x << bits) | ((x >> (32 - bits)) & ((1 << bits) - 1))


def _box_muller(u: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two independent normals from two words."""
    radius = torch.sqrt(-2 * torch.log(_uniform(u)))
    angle = 2 * pi * _uniform(v)
    return radius * torch.cos(angle), radius * torch.sin(angle)


def _uniform(word: torch.Tensor) -> torch.Tensor:
    """(k + ½) 2⁻³¹ from the low 31 bits: never 0, and small values keep their digits, so the tails are right."""
    return (word & 0x7FFFFFFF).to(torch.float32) * 2.0**-31 + 2.0**-32
