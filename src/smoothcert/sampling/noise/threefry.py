"""Threefry-4x32 (Salmon et al., 2011) in tensor operations: random bits as a function of a key, on any device.

torch's own generators keep at most 64 bits of a seed.
"""

from __future__ import annotations

import numpy as np
import torch

_ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))
_PARITY = 0x1BD11BDA


def random_words(key: bytes, start: int, stop: int, device: torch.device) -> tuple[torch.Tensor, ...]:
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
