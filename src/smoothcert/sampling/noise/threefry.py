"""Threefry-4x32 (Salmon et al., 2011) in tensor operations: random values as a function of a key, on any device.

torch's own generators keep at most 64 bits of a seed.
"""

from __future__ import annotations

from math import pi

import numpy as np
import torch

_ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))
_PARITY = 0x1BD11BDA


def normals(key: bytes, position: int, size: int, device: torch.device) -> torch.Tensor:
    """Standard normal values `position … position + size − 1` of the key's stream; counter i gives 4i … 4i + 3."""
    u, v, s, t = _random_words(key, position // 4, -(-(position + size) // 4), device)
    values = torch.stack([*_box_muller(u, v), *_box_muller(s, t)], dim=-1).flatten()
    return values[position % 4 :][:size]


def integers(key: bytes, position: int, size: int, device: torch.device) -> torch.Tensor:
    """Random int64 values `position … position + size − 1` of the key's stream; counter i gives 2i and 2i + 1."""
    a, b, c, d = _random_words(key, position // 2, -(-(position + size) // 2), device)
    return torch.stack([_join(a, b), _join(c, d)], dim=-1).flatten()[position % 2 :][:size]


def _box_muller(u: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two independent normals from two words."""
    radius = torch.sqrt(-2 * torch.log(_uniform(u)))
    angle = 2 * pi * _uniform(v)
    return radius * torch.cos(angle), radius * torch.sin(angle)


def _uniform(word: torch.Tensor) -> torch.Tensor:
    """(k + ½) 2⁻³¹ from the low 31 bits: never 0, and small values keep their digits, so the tails are right."""
    return (word & 0x7FFFFFFF).to(torch.float32) * 2.0**-31 + 2.0**-32


def _join(high: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    return high.to(torch.int64) << 32 | low.to(torch.int64) & 0xFFFFFFFF


def _random_words(key: bytes, start: int, stop: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Four int32 words for each of the counters `start … stop − 1` under a 128-bit key."""
    words = torch.from_numpy(np.frombuffer(key, dtype="<i4").copy()).to(device)
    counter = torch.arange(start, stop, dtype=torch.int32, device=device)
    zero = torch.zeros_like(counter)
    return threefry((counter, zero, zero, zero), words.unbind())


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
