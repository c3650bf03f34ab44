"""The noise of `gaussian` and `grid`, compiled: the same bits as by NumPy, whole batches in one call.

Numba compiles for the processor at hand and keeps the result beside this file, or in the user's cache. It neither
reorders nor contracts floating-point operations. Lanes, one a counter, let vector instructions work on several rows at
once; values are put in their places, and added to the input, last. Loops go over slices from 0 on, and have look-ups in
a loop of their own: a place that might be counted from the end, or a look-up, keeps a loop from vector instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from smoothcert.sampling.noise.bits import LOW, MULTIPLIERS, ROUNDS, STEPS
from smoothcert.sampling.noise.inverse import FIRST, TAIL, U
from smoothcert.sampling.noise.thresholds import OPEN

Function = TypeVar("Function", bound=Callable[..., Any])
Words = NDArray[np.uint32]
Floats = NDArray[np.float32]

LANES = 512
_M, _N = (np.uint64(m) for m in MULTIPLIERS)
_K, _H = (np.uint64(step) for step in STEPS)
_LOW, _16, _32, _48 = np.uint64(LOW), np.uint64(16), np.uint64(32), np.uint64(48)
_HALF, _SHIFT = np.uint32(0xFFFF), np.uint32(16)
_U, _SIGN, _SEGMENT = np.int32(U), np.int32(-(2**31)), np.int32(16)
_FIRST, _TAIL, _NONE = np.int32(FIRST), np.int32(TAIL), np.int32(2**30)
_LEAST, _UNIT = np.float32(0.5), np.float32(2.0**-16)


def compiled(function: Function) -> Function:
    """Without the interpreter's lock, and kept for the next process where there is a place to write."""
    try:
        return cast("Function", njit(nogil=True, cache=True)(function))
    except RuntimeError:
        return cast("Function", njit(nogil=True)(function))


@compiled
def gaussian(keys: Words, spans: Any, centres: Floats, sigma: np.float32, table: Any, out: Floats) -> None:
    """`out[r] = centre + sigma · normals` for each row."""
    rows, size = out.shape
    names, which = _rows(keys, spans, rows)
    counters = (size + 3) // 4
    extra = (size + 7) // 8
    lanes, words, more = np.empty((6, LANES), np.uint32), np.empty(4 * LANES, np.uint32), np.empty(4, np.uint32)
    values, segments = np.empty(4 * LANES, np.float32), np.empty(4 * LANES, np.int32)
    at_once = max(1, LANES // counters)
    for top in range(0, rows, at_once):
        count = min(at_once, rows - top)
        for place in range(0, counters, LANES):
            width = min(LANES, counters - place)
            n = count * width
            _name_rows(lanes, names, top, count, place, width)
            _philox(lanes, n, words)
            if _normals(words, values, segments, 4 * n, table) < _TAIL:
                for i in range(4 * n):
                    if np.int32(words[i]) & _U < _TAIL:
                        v = i // n * counters + place + i % width
                        _name(lanes, 0, names, top + i % n // width, v % extra, 1)
                        _philox(lanes, 1, more)
                        half = v // extra
                        e = more[half] & _HALF if half < 4 else more[half - 4] >> _SHIFT
                        values[i] = _tail(words[i], e, table)
            for r in range(top, top + count):
                c = which[r]
                for k in range(4):
                    first, start = k * counters + place, k * n + (r - top) * width
                    stop = min(first + width, size)
                    centre, drawn, noisy = centres[c, first:stop], values[start:], out[r, first:stop]
                    for i in range(stop - first):
                        noisy[i] = centre[i] + sigma * drawn[i]


@compiled
def grid(keys: Words, spans: Any, centres: Floats, levels: np.float32, table: Any, out: Floats) -> None:
    """`out[r] = (centre + draws) / levels` for each row, with the tables of `thresholds.table`."""
    settled, lowest, edges = table
    rows, size = out.shape
    names, which = _rows(keys, spans, rows)
    counters = (size + 7) // 8
    pairs = (size + 1) // 2
    reach = len(edges) // 2
    lanes, words = np.empty((6, LANES), np.uint32), np.empty(4 * LANES, np.uint32)
    others, more = np.empty((6, LANES), np.uint32), np.empty(4 * LANES, np.uint32)
    cells, values, unsettled = np.empty(LANES, np.uint32), np.empty(LANES, np.float32), np.empty(LANES, np.int64)
    at_once = max(1, LANES // counters)
    for top in range(0, rows, at_once):
        count = min(at_once, rows - top)
        for place in range(0, counters, LANES):
            width = min(LANES, counters - place)
            n = count * width
            _name_rows(lanes, names, top, count, place, width)
            _philox(lanes, n, words)
            for k in range(8):
                first = k * counters + place
                _halves(words[k % 4 * n : (k % 4 + 1) * n], k // 4, cells)
                left = _settle(cells[:n], settled, values, unsettled)
                _name_others(lanes, unsettled[:left], k * counters, pairs, others)
                _philox(others, left, more)
                for j in range(left):
                    i = unsettled[j]
                    pair = j if k * counters + lanes[0, i] < pairs else 2 * left + j
                    word = (
                        np.uint64(cells[i]) << _48 | np.uint64(more[pair]) << _16 | np.uint64(more[pair + left]) >> _16
                    )
                    draw = lowest[cells[i]]
                    while draw < len(edges) and edges[draw] <= word:
                        draw += 1
                    values[i] = np.float32(draw - reach)
                stop = min(first + width, size)
                for r in range(count):
                    centre, drawn, noisy = (
                        centres[which[top + r], first:stop],
                        values[r * width :],
                        out[top + r, first:stop],
                    )
                    for i in range(stop - first):
                        noisy[i] = (centre[i] + drawn[i]) / levels


@compiled
def _rows(keys: Words, spans: Any, rows: int) -> Any:
    """`Layout.names`."""
    names, which = np.empty((rows, 5), np.uint32), np.empty(rows, np.int64)
    r = 0
    for i in range(len(keys)):
        for line in range(spans[i, 0], spans[i, 0] + spans[i, 1]):
            names[r, :4] = keys[i]
            names[r, 4] = line
            which[r] = spans[i, 2]
            r += 1
    return names, which


@compiled
def _name(lanes: Words, i: int, names: Words, row: int, place: int, part: int) -> None:
    """Lane i: place and line as the first half of a counter, the key of the row as the rest and as the key."""
    lanes[0, i] = place
    lanes[1, i] = 2 * names[row, 4] + part
    lanes[2, i] = names[row, 2]
    lanes[3, i] = names[row, 3]
    lanes[4, i] = names[row, 0]
    lanes[5, i] = names[row, 1]


@compiled
def _name_rows(lanes: Words, names: Words, top: int, count: int, place: int, width: int) -> None:
    """Lanes for `width` counters, from `place` on, of each of `count` rows."""
    for r in range(count):
        for i in range(width):
            _name(lanes, r * width + i, names, top + r, place + i, 0)


@compiled
def _philox(lanes: Words, n: int, words: Words) -> None:
    """`bits.philox`: the first words of n lanes, then the second, the third and the fourth."""
    for i in range(n):
        a, b, c, d = np.uint64(lanes[0, i]), np.uint64(lanes[1, i]), np.uint64(lanes[2, i]), np.uint64(lanes[3, i])
        k, h = np.uint64(lanes[4, i]), np.uint64(lanes[5, i])
        for _ in range(ROUNDS):
            p, q = _M * a, _N * c
            a, b, c, d = (q >> _32) ^ b ^ k, q & _LOW, (p >> _32) ^ d ^ h, p & _LOW
            k, h = (k + _K) & _LOW, (h + _H) & _LOW
        words[i] = np.uint32(a)
        words[n + i] = np.uint32(b)
        words[2 * n + i] = np.uint32(c)
        words[3 * n + i] = np.uint32(d)


@compiled
def _normals(words: Words, values: Floats, segments: Any, n: int, table: Any) -> Any:
    """`inverse.normals`, as if none took more bits; returns the smallest u."""
    a, b, c = table
    least = _NONE
    for i in range(n):
        u = np.int32(words[i]) & _U
        least = min(least, u)
        segment = np.float32(u).view(np.int32) >> _SEGMENT
        values[i] = np.float32(u - np.int32(np.int32(segment << _SEGMENT).view(np.float32)))
        segments[i] = max(segment - _FIRST, np.int32(0))
    for i in range(n):
        j = np.uint64(segments[i])
        values[i] = a[j] + values[i] * (b[j] + values[i] * c[j])
    for i in range(n):
        values[i] = np.int32(np.float32(values[i]).view(np.int32) ^ (np.int32(words[i]) & _SIGN)).view(np.float32)
    return least


@compiled
def _tail(word: Any, e: Any, table: Any) -> Any:
    """The value of a word that takes 16 more bits."""
    a, b, c = table
    x = np.float32(max(np.float32((np.int32(word) & _U) * 2**16 + np.int32(e)), _LEAST) * _UNIT)
    segment = x.view(np.int32) >> _SEGMENT
    t = x - np.int32(segment << _SEGMENT).view(np.float32)
    j = np.uint64(segment - _FIRST)
    z = np.float32(a[j] + t * (b[j] + t * c[j]))
    return np.int32(z.view(np.int32) ^ (np.int32(word) & _SIGN)).view(np.float32)


@compiled
def _halves(words: Words, upper: int, cells: Words) -> None:
    """The lower or the upper halves of words."""
    shift = np.uint32(16 * upper)
    for i in range(len(words)):
        cells[i] = words[i] >> shift & _HALF


@compiled
def _settle(cells: Words, settled: Any, values: Floats, unsettled: Any) -> int:
    """The draws that 16 bits settle; returns how many are left, which `unsettled` begins with."""
    left = 0
    for i in range(len(cells)):
        draw = settled[cells[i]]
        values[i] = np.float32(draw)
        unsettled[left] = i
        left += draw == OPEN
    return left


@compiled
def _name_others(lanes: Words, which: Any, first: int, pairs: int, others: Words) -> None:
    """Lanes for the second part of the bits of some values."""
    for j in range(len(which)):
        i = which[j]
        value = first + lanes[0, i]
        others[0, j] = value - pairs if value >= pairs else value
        others[1, j] = lanes[1, i] + 1
        for word in range(2, 6):
            others[word, j] = lanes[word, i]
