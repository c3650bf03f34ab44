"""Standard normal values from random bits, by the inverse of their distribution function, with the same bits anywhere.

A value is ±Φ⁻¹(p). One of 32 bits is the sign, one is not used, and 30 are a whole number u with p = (u + ½) 2⁻³¹. The
smallest u, under 256, take 16 more bits: u' = 2¹⁶ u + e and p = (u' + ½) 2⁻⁴⁷. So the tails reach to 7.9, and between
values that can be drawn there is never more than 0.4 % of what lies beyond them.

Let x = u, or 2⁻¹⁶ u' for those. Each octave of x is cut in 128 segments, and in each −Φ⁻¹ is a parabola in x − start
that goes through three Chebyshev nodes, which is within 2.4 · 10⁻⁹ of it. After the table there are whole numbers and
float32 sums and products only, each rounded once, which all processors do alike. So is the table: float64 sums,
products, quotients and roots (Wichura, 1988, algorithm AS 241), with a logarithm of our own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothcert.sampling.noise.bits import Array

U = 0x3FFFFFFF
"""The bits of a word that are u."""

SEGMENTS = 128
TAIL = 256
"""Numbers u below this take more bits."""

_LOWEST, _HIGHEST = -17, 30  # octaves of x: from where u' is 0, to p = ½
_SHIFT = 16  # bits of a float32 that are not those of its segment
FIRST = (127 + _LOWEST) * SEGMENTS  # the segment number of the table's first entry, as a float32 has it in its bits

_NEAR = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
     13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
     5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
_FAR = (
    (7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
     3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
     0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
)  # fmt: skip
_FARTHEST = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
     0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
     0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0),
)  # fmt: skip


class Table(NamedTuple):
    """a + t (b + t c), t = x − start, for each segment; the last one begins at p = ½."""

    start: Any
    a: Any
    b: Any
    c: Any


def normals(words: Array, extra: Array, table: Table, xp: Any) -> Array:
    """The values of words of 32 bits; `extra` are 16 more, for those that take them."""
    words = xp.asarray(words, dtype=xp.int32)
    u = words & U
    tail = u < TAIL
    number = xp.where(tail, u * 2**16 + xp.asarray(extra, dtype=xp.int32), u)
    x = xp.asarray(number, dtype=xp.float32)
    rest = xp.asarray(number - xp.asarray(x, dtype=xp.int32), dtype=xp.float32)  # what a float32 did not hold
    x = xp.where(tail, xp.clip(x, 0.5, None) * 2.0**-16, x)
    segment = xp.asarray((x.view(xp.int32) >> _SHIFT) - FIRST, dtype=xp.int64)
    t = (x - table.start[segment]) + rest
    z = table.a[segment] + t * (table.b[segment] + t * table.c[segment])
    return z * xp.asarray(1 + 2 * (words >> 31), dtype=xp.float32)


@lru_cache(maxsize=1)
def table() -> Table:
    """The parabolas through −Φ⁻¹ at the middle of each segment and √3/4 of it to either side."""
    octave = 2.0 ** np.arange(_LOWEST, _HIGHEST)
    start = np.append(np.multiply.outer(octave, 1 + np.arange(SEGMENTS) / SEGMENTS), 2.0**_HIGHEST)
    width = np.append(np.repeat(octave, SEGMENTS), 2.0**_HIGHEST) / SEGMENTS
    half = np.where(start >= TAIL, 0.5, np.where(start >= 2.0**-16, 2.0**-17, 0.0))
    reach = np.sqrt(3.0) / 4
    below, middle, above = (-_quantile((start + half + width * (0.5 + d)) / 2**31) for d in (-reach, 0.0, reach))
    slope, bend = (above - below) / (2 * reach), (above + below - 2 * middle) / (2 * reach * reach)
    parts = start, middle - slope / 2 + bend / 4, (slope - bend) / width, bend / (width * width)
    return Table(*(part.astype(np.float32) for part in parts))


def _quantile(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Φ⁻¹(p) for 0 < p < 0.9 with 15 digits: AS 241."""
    q = p - 0.5
    near = q * _ratio(_NEAR, 0.180625 - q * q)
    r = np.sqrt(-_log(np.minimum(p, 0.1)))
    far = np.where(r <= 5, _ratio(_FAR, r - 1.6), _ratio(_FARTHEST, r - 5))
    return np.where(abs(q) <= 0.425, near, -far)


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: NDArray[np.float64]) -> NDArray[np.float64]:
    above, below = (_polynomial(part, x) for part in coefficients)
    return above / below


def _polynomial(coefficients: tuple[float, ...], x: NDArray[np.float64]) -> NDArray[np.float64]:
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def _log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """By its series around ¾ · 2ᵏ, because libraries round theirs in different ways."""
    m, exponent = np.frexp(x)
    y = (m - 0.75) / (m + 0.75)
    series = _polynomial(tuple(1 / k for k in range(21, 0, -2)), y * y)
    return exponent * 0.6931471805599453 + (2 * y * series - 0.2876820724517809)
