"""Random bits as a function of a key: Philox-4x32-10 (Salmon et al., 2011) in operations of NumPy or of torch.

A counter of 128 bits and a key of 64 give four words of 32 bits. The 128 bits that name the noise of a block fill the
key and half of the counter; the rest of it says which row of the block, which of two parts of the row's bits, and
where in it. So every bit can be computed on its own, anywhere, and no two draws share one.

A row of n values takes ⌈n/m⌉ counters if each serves m: value v has place v mod ⌈n/m⌉ among them, and there word,
half or pair number v div ⌈n/m⌉. Neighbours come from neighbouring counters, as vector instructions like it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
STEPS = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
LOW = 0xFFFFFFFF

Array = Any
"""An int64 array of NumPy or tensor of torch; `xp` is the module that it comes from."""


def philox(counter: tuple[Array, ...], key: tuple[Array, ...]) -> tuple[Array, ...]:
    """Four words. Products wrap around at 64 bits; what is above 32 is masked away last."""
    a, b, c, d = counter
    k, h = key
    for i in range(ROUNDS):
        p, q = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b = ((q >> 32) ^ b ^ (k + i * STEPS[0])) & LOW, q & LOW
        c, d = ((p >> 32) ^ d ^ (h + i * STEPS[1])) & LOW, p & LOW
    return a, b, c, d


def halves(words: tuple[Array, ...]) -> tuple[Array, ...]:
    """Eight times 16 bits of four words."""
    return *(word & 0xFFFF for word in words), *(word >> 16 for word in words)


def pairs(words: tuple[Array, ...]) -> tuple[Array, ...]:
    """Two times 48 bits of four words."""
    a, b, c, d = words
    return a << 16 | b >> 16, c << 16 | d >> 16


def whole(words: tuple[Array, ...]) -> tuple[Array, ...]:
    """The four words."""
    return words


SERVED = {whole: 4, halves: 8, pairs: 2}
"""How many values a counter serves."""


def rows_of_bits(names: Array, size: int, cuts: tuple[Any, ...], xp: Any) -> list[Array]:
    """Bits for `size` values of each row, shape (rows, size): of the first part, and of the second if two are cut."""
    first, *more = (-(-size // SERVED[cut]) for cut in cuts)
    counters = first + sum(more)
    place = (np.arange(counters) if xp is np else xp.arange(counters, device=names.device))[None]
    part = xp.asarray(place >= first, dtype=xp.int64)
    k, h, m, n, line = (names[:, i : i + 1] for i in range(5))
    words = philox((place - first * part, 2 * line + part, m, n), (k, h))
    ranges = (slice(first), slice(first, None))
    return [
        xp.concatenate(cut(tuple(word[:, own] for word in words)), axis=1)[:, :size]
        for cut, own in zip(cuts, ranges, strict=False)
    ]


def bits_at(names: NDArray[np.int64], values: NDArray[np.int64], size: int, cut: Any) -> NDArray[np.int64]:
    """Bits of the second part for single values, each with its row's name."""
    counters = -(-size // SERVED[cut])
    k, h, m, n, line = names.T
    found = np.stack(cut(philox((values % counters, 2 * line + 1, m, n), (k, h))))
    chosen: NDArray[np.int64] = found[values // counters, np.arange(len(values))]
    return chosen
