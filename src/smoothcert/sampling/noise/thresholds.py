"""The distribution function of the rounded Gaussian as 64-bit integers, with a bound on every error.

Let s = σ · levels be the standard deviation in steps of the grid, Z standard normal and K = round(s Z). Then
P(K < k) = Φ((k − ½)/s), and K is drawn from a uniform 64-bit integer U by counting the thresholds
`T_k = round(2⁶⁴ Φ((k − ½)/s))` that are at most U. Thresholds that round to 0 or 2⁶⁴ are left out, which lumps the
tails into the last bins.

Error of a threshold. Φ(z) = ½ + φ(z) S(z) with `S(z) = z + z³/3 + z⁵/(3·5) + z⁷/(3·5·7) + …` (Marsaglia, 2004), all
terms positive for z > 0. `decimal` rounds every operation correctly, exp and sqrt included: with 40 digits the relative
error of each is below u = 10⁻³⁹. So z has relative error 4u, z² has 9u, term m of S has (11m + 4)u, φ(z) has
(9z²/2 + 6)u, and a sum of M terms adds Mu. With M < 400 and z < 12 (as s ≥ ½) all this is below 10⁴ u = 10⁻³⁵. The
series ends when a term is below 10⁻³⁵ of the sum and the next ones fall to half or less each, so that what is left out
is less than this last term. As φS < ½, Φ is known to within 10⁻³⁴.

Error of a draw. With b bins there are b − 1 thresholds, each within e = 2⁻⁶⁵ + 10⁻³⁴ of the true distribution function,
and either tail that is lumped has a mass below e. A threshold that is off by e puts a mass of e into the wrong bin, so
the total variation distance is at most (b + 1) e, which is below **b · 2⁻⁶⁴** for b ≥ 3.

Off the grid, f steps from a grid point, P(K < k) = Φ((k − ½ − f)/s). The arguments lie as far apart, so that at most
one more of them is within the reach of 64 bits: the bound is (b + 2) e, which is below b · 2⁻⁶⁴ for b ≥ 3 as well.
"""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
_SMALL = Decimal("1e-35")

OPEN = -(2**15)
"""In place of a draw that 16 bits do not settle; those that they settle are below 4.3 σ, and σ below 2¹² steps."""


class Table(NamedTuple):
    """What the first 16 bits of U say, the draw or `OPEN`; how many thresholds are at most them; and all thresholds."""

    settled: NDArray[np.int16]
    lowest: NDArray[np.int32]
    edges: NDArray[np.uint64]

    @property
    def reach(self) -> int:
        """The largest draw."""
        return len(self.edges) // 2

    def search(self, words: NDArray[np.uint64]) -> NDArray[np.float32]:
        """The draw of each U."""
        return (np.searchsorted(self.edges, words, side="right") - self.reach).astype(np.float32)


@lru_cache(maxsize=8)
def table(sigma: float, levels: int) -> Table:
    """The thresholds, ready to be used."""
    edges = thresholds(sigma, levels)
    first = np.arange(2**16, dtype=np.uint64) << np.uint64(48)
    low, high = (np.searchsorted(edges, u, side="right") for u in (first, first | np.uint64(2**48 - 1)))
    settled = np.where(low == high, low - len(edges) // 2, OPEN)
    return Table(settled.astype(np.int16), low.astype(np.int32), edges)


def thresholds(sigma: float, levels: int) -> NDArray[np.uint64]:
    """T_k for k = −K + 1 … K, increasing: the number of them at most U, less K, is the rounded Gaussian."""
    lower: list[int] = []
    with localcontext(Context(prec=40)):
        half_step = 1 / (2 * Decimal(sigma) * levels)
        while (threshold := _lower_tail((2 * len(lower) + 1) * half_step)) > 0:
            lower.append(threshold)
    return np.array([*reversed(lower), *(2**64 - t for t in lower)], dtype=np.uint64)


def threshold(middle: float, shift: float, sigma: float, levels: int) -> int:
    """round(2⁶⁴ Φ((middle − shift)/s)): what U is compared with at `shift` steps from a grid point."""
    with localcontext(Context(prec=40)):
        z = (Decimal(float(middle)) - Decimal(float(shift))) / (Decimal(sigma) * levels)
        return _lower_tail(-z) if z < 0 else 2**64 - _lower_tail(z)


def _lower_tail(z: Decimal) -> int:
    """round(2⁶⁴ Φ(−z)) for z ≥ 0."""
    square = z * z
    term = total = z
    odd = 1
    while term > _SMALL * total or 2 * square > odd:
        odd += 2
        term = term * square / odd
        total += term
    density = (-square / 2).exp() / (2 * _PI).sqrt()
    return int((2**64 * (Decimal("0.5") - density * total)).to_integral_value())
