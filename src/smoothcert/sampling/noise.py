"""Standard normal noise as a pure function of 128-bit keys, generated on the device that uses it.

On the CPU each key seeds NumPy's Philox generator (Salmon et al., 2011) and its ziggurat. Accelerators get
Threefry-4x32 (same paper) in tensor operations, all keys at once, and the Box-Muller transform: torch's own
generators keep at most 64 bits of a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, prod

import numpy as np
import torch

_ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))
_PARITY = 0x1BD11BDA


def fill_normal(keys: Sequence[bytes], out: torch.Tensor) -> None:
    """Fills `out[i]` with standard normal values that depend on `keys[i]` alone; `out` is float32 and contiguous."""
    if out.device.type == "cpu":
        for key, row in zip(keys, out.numpy(), strict=True):
            philox = np.random.Philox(key=np.frombuffer(key, dtype="<u8"))
            np.random.Generator(philox).standard_normal(out=row, dtype=np.float32)
    else:
        out.copy_(threefry_normal(keys, tuple(out.shape[1:]), out.device))


def threefry_normal(keys: Sequence[bytes], shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """(len(keys), *shape) standard normal values from Threefry-4x32, on any device."""
    size = prod(shape)
    key = torch.from_numpy(np.frombuffer(b"".join(keys), dtype="<i4").reshape(len(keys), 4, 1).copy()).to(device)
    counter = torch.arange(-(-size // 4), dtype=torch.int32, device=device).expand(len(keys), -1)
    zero = torch.zeros_like(counter)
    words = threefry((counter, zero, zero, zero), key.unbind(1))
    pairs = [_box_muller(words[0], words[1]), _box_muller(words[2], words[3])]
    return torch.stack([half for pair in pairs for half in pair], dim=-1).flatten(1)[:, :size].reshape(-1, *shape)


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
