"""The probability of a region of trinomial outcomes along the curve `p_j = Φ(z), p_1 = Φ(z + t)`, proved to be small.

The outcomes are (x, y, r): the counts of class 1, of class j and of the rest. `supremum` bounds `f(z) = P(R)` between
two z from its values and derivatives at finitely many. Three facts carry it from points to everything in between.

**f is analytic and cannot grow fast.** For real ξ and complex u with |u| ≤ r, Cauchy and Schwarz against the
distribution at ξ, and the multinomial theorem, give

    |f(ξ + u)|² ≤ f(ξ) (Σ_i |p_i(ξ + u)|² / p_i(ξ))ⁿ = f(ξ) (1 + Σ_i |p_i(ξ + u) − p_i(ξ)|² / p_i(ξ))ⁿ ≤ f(ξ) e^x,
    x = n (Δ_j² / p_j + Δ_1² / p_1 + (Δ_j + Δ_1)² / p_rest),
    |Φ(v + u) − Φ(v)| ≤ Δ = φ(v) e^{r²/2} (e^{|v| r} − 1) / |v|,    since |φ(v + u)| ≤ φ(v) e^{|v| |u| + |u|²/2}.

So `|f⁽ᵏ⁾(ξ)| / k! ≤ √(f(ξ) e^x) / rᵏ` (Cauchy), with any r. Nothing is asked of R.

**Between two points.** In a cell of width δ let H be the polynomial with the first K + 1 Taylor coefficients of f at
either end, and S the largest f in the cell. Then `|f − H| ≤ √(S e^x) (δ / 2r)^{2K + 2}`, and H is at most its largest
Bernstein coefficient B. `S ≤ B + e √S` gives `S ≤ (e/2 + √(e²/4 + B))²`. A cell with too large a bound is halved.

**What is left out.** The same inequality, for outcomes of probability c that a sum leaves out, bounds what they would
add to the k-th Taylor coefficient: `√(c e^x) / rᵏ`. And for rounding: a relative error ε in the terms of the sums
changes the k-th coefficient by at most `ε √(f e^x) / rᵏ`. ε is taken as `rounding(n)`, twenty times what the terms lose
in double precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ORDER = 6  # K; at 4 and at 8 a proof takes as long
BERNSTEIN = np.array(
    [[math.comb(i, j) / math.comb(2 * ORDER + 1, j) for j in range(ORDER + 1)] for i in range(ORDER + 1)]
)
RADII = np.array([[0.6, 0.8, 1.0, 1.3, 1.7, 2.2, 3.0, 4.0, 6.0]]).T  # the r that are tried, in widths of the cell
REACHES = np.array([[0.12, 0.24, 0.36, 0.48, 0.7, 1.0]]).T
CHUNK = 1 << 12  # terms at a time: they stay in the cache
DROPS = 8  # beyond, the incomplete beta function is as fast


@dataclass(frozen=True)
class Region:
    """The outcomes of n draws with y ≤ y_max and a rest on or below the piecewise linear, falling curve (y, rest)."""

    n: int
    y: Floats
    rest: Floats

    @property
    def y_max(self) -> int:
        return int(self.y[-1])

    def most_rest(self, y: Floats | Ints) -> Floats:
        return np.asarray(np.floor(np.minimum(np.interp(y, self.y, self.rest), self.n - y)))


def rounding(n: int) -> float:
    """More than the relative error of a term of the sums; an f below its square cannot be bounded closely."""
    return 1e-14 * (100 + n)


def supremum(region: Region, z_min: float, z_max: float, t: float, level: float, room: float) -> tuple[float, float]:
    """An upper bound on P(R) between z_min and z_max, and the z where the largest value was found.

    The bound holds whatever the level: the work ends when it is below it. Where P(R) exceeds the level, it is close to
    the supremum.
    `room` is the share by which the supremum is thought to lie below the level: cells and sums are made for it.
    """
    n, degree = region.n, 2 * ORDER + 2
    # Cells for which the remainder, at its best r, is about a quarter of the room.
    width = 2 * math.sqrt(degree) * (room / 4 * math.sqrt(level)) ** (1 / degree) * math.exp(-0.5)
    grid = np.linspace(z_min, z_max, 2001)
    steps = deviations(n, grid, t)
    z = np.interp(np.linspace(0, steps[-1], math.ceil(steps[-1] / width) + 2), steps, grid)
    cut = max((room * level / 20) ** 2, 1e-300)
    points, most = np.empty((ORDER + 3, 0)), 5 * z.size + 200
    while True:
        coefficients, _, lost = expand(region, z, t, ORDER, cut)
        points = np.hstack([points, np.vstack([z, lost, coefficients])])
        points = points[:, np.argsort(points[0])]
        bounds, largest = _cells(n, points, t), points[2].max()
        open_ = np.flatnonzero(bounds > (level if largest <= level else largest * (1 + room / 4)))
        if not open_.size or points.shape[1] > most:
            return float(bounds.max()), float(points[0, points[2].argmax()])
        z = (points[0, open_] + points[0, open_ + 1]) / 2


def deviations(n: int, z: Floats, t: float) -> Floats:
    """The way along the curve from z[0] in standard deviations of the score: ∫ √(n Σ p_i'² / p_i) dz."""
    pj, p1 = special.ndtr(z), special.ndtr(z + t)
    dj, d1 = density(z), density(z + t)
    rest = np.maximum(special.ndtr(-z - t) - pj, 1e-3 / n)
    rate = np.sqrt(n * (dj**2 / pj + d1**2 / p1 + (dj + d1) ** 2 / rest))
    return np.append(0.0, np.cumsum((rate[1:] + rate[:-1]) / 2 * np.diff(z)))


def expand(region: Region, z: Floats, t: float, order: int, cut: float) -> tuple[Floats, Floats, Floats]:
    """Taylor coefficients of P(R) in z (order + 1, points), its derivative in t, and the mass that they leave out."""
    low, high = _window(region, z, t, cut)
    parts = np.split(np.arange(z.size), np.flatnonzero(np.diff(np.cumsum(high - low + 1) // CHUNK)) + 1)
    sums = [_expand(region, z[i], t, order, low[i], high[i]) for i in parts]
    coefficients, slope, lost = (np.concatenate(part, axis=-1) for part in zip(*sums, strict=True))
    return coefficients, slope, lost


def density(z: Floats) -> Floats:
    return np.asarray(np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi))


def _window(region: Region, z: Floats, t: float, cut: float) -> tuple[Ints, Ints]:
    """The y outside of which R has a probability of about `cut` on either side."""
    n, mean = region.n, region.n * special.ndtr(z)
    deviation = np.sqrt(mean * special.ndtr(-z))
    low = np.clip(np.floor(mean + special.ndtri(cut) * deviation), 0, region.y_max)
    log = -math.log(cut)
    y = np.ceil(mean + REACHES * (log / 3 + np.sqrt(log**2 / 9 + 2 * log * deviation**2)))  # at most Bernstein's bound
    y = np.clip(y, 0, region.y_max)
    rest = region.most_rest(y)
    beyond = special.bdtrc(y, n, special.ndtr(z)) * _tail(n - y - rest, rest, special.ndtr(z + t) / special.ndtr(-z))
    beyond[-1] = 0.0
    high = np.take_along_axis(y, (beyond <= cut).argmax(axis=0)[None], axis=0)[0]
    return low.astype(np.int64), np.asarray(high, dtype=np.int64)


def _tail(x: Floats, rest: Floats, p: Floats) -> Floats:
    """P(Bin(x + rest, p) ≥ x)."""
    return np.where(x > 0, special.betainc(np.maximum(x, 1.0), rest + 1, np.minimum(p, 1.0)), 1.0)


def _expand(region: Region, z: Floats, t: float, order: int, low: Ints, high: Ints) -> tuple[Floats, Floats, Floats]:
    """`f = Σ_y u_y`, `u_y = P(N_j = y) P(rest ≤ most_rest(y) | y)`, and its derivatives, y from low to high.

    With v_y the probability of the outcome (x, y, r) at the edge of R, and ' the derivative along the curve,

        u' = (y log(p_j)' + (n − y) log(1 − p_j)') u + x log(p_1 / (1 − p_j))' v,
        v' = (y log(p_j)' + r log(p_rest)' + x log(p_1)') v,

    which give one Taylor coefficient after the other. With `k! = (k/e)ᵏ e^c(k)` the logarithm of the probability of
    counts k is `c(n) + Σ (k log(np/k) − c(k))`: no term is much larger than the result, as those of factorials are.
    """
    n, z = region.n, z[:, None]
    pj, other, p1 = special.ndtr(z), special.ndtr(-z), special.ndtr(z + t)
    rest = special.ndtr(-z - t) - pj
    dj, d1 = _normal_series(z, order), _normal_series(z + t, order)
    log_j, log_1 = _logarithmic(pj, dj), _logarithmic(p1, d1)
    log_other, log_rest = _logarithmic(other, -dj), _logarithmic(rest, -dj - d1)

    y = np.arange(low.min(), high.max() + 1)
    r = region.most_rest(y)
    counts = y, n - y, r, n - y - r
    shares = [np.log(np.maximum(k, 1) / n) for k in counts]
    c_y, c_other, c_r, c_x = (_stirling(k) for k in counts)
    c_n = _stirling(np.array(n))
    columns = y, r, *shares, c_n - c_y - c_other, c_n - c_y - c_r - c_x
    at = np.arange((high - low).max() + 1) + (low - low.min())[:, None]
    inside = at <= (high - low.min())[:, None]
    at = np.minimum(at, y.size - 1)
    y, r, share_y, share_other, share_r, share_x, c_u, c_v = (np.asarray(c, dtype=np.float64)[at] for c in columns)
    x = n - y - r
    log_mass = y * (np.log(pj) - share_y) + (n - y) * (np.log(other) - share_other) + c_u
    log_edge = y * (np.log(pj) - share_y) + r * (np.log(rest) - share_r) + x * (np.log(p1) - share_x) + c_v
    u, v = np.empty((2, order + 1, *y.shape))
    u[0] = np.where(inside, np.exp(log_mass), 0.0) * _tails(x, r, p1, rest, np.exp(log_edge - log_mass), high - low)
    v[0] = np.where(inside, np.exp(log_edge), 0.0)
    slope = (x * v[0]).sum(axis=1) * log_1[0, :, 0]
    rate_u = n * log_other[:order] + y * (log_j - log_other)[:order]
    rate_v = n * log_1[:order] + y * (log_j - log_1)[:order] + r * (log_rest - log_1)[:order]
    gain = (log_1 - log_other)[..., 0]
    for k in range(order):
        edge = np.einsum("ij,ijy->jy", gain[: k + 1], v[k::-1])
        u[k + 1] = (np.einsum("ijy,ijy->jy", rate_u[: k + 1], u[k::-1]) + x * edge) / (k + 1)
        v[k + 1] = np.einsum("ijy,ijy->jy", rate_v[: k + 1], v[k::-1]) / (k + 1)

    # P(rest ≤ … | y) falls with y; one more of the rest makes up for a curve rounded the wrong way.
    last = np.arange(z.size), high - low
    beyond = _tail(np.maximum(x[last] - 1, 0), r[last] + 1, (p1 / other)[:, 0]) * special.bdtrc(high, n, pj[:, 0])
    below = np.where(low > 0, special.bdtr(np.maximum(low - 1.0, 0), n, pj[:, 0]), 0.0)
    lost = below + np.where(high < region.y_max, beyond, 0.0)
    return u.sum(axis=2), slope, lost


def _tails(x: Floats, r: Floats, p1: Floats, rest: Floats, edge: Floats, last: Ints) -> Floats:
    """`P(Bin(x + r, p) ≥ x)`, p = p_1 / (p_1 + p_rest), for neighbouring y in each row; edge is the probability of x.

    From y to y − 1 there is one draw more and some more of the rest are allowed, the drop of the curve. With few of
    them it is faster to add up what that gains, from the last y on, than to compute each tail: with q = 1 − p

        P(Bin(m, q) ≤ r) − P(Bin(m − 1, q) ≤ r') = Σ_{r' < k ≤ r} P(Bin(m, q) = k) − q P(Bin(m − 1, q) = r').

    The sum exceeds what is taken off by the factor (x + r) / r or more: digits are lost only where x is small.
    """
    share, odds = p1 / (p1 + rest), p1 / rest
    used = np.arange(r.shape[1] - 1) < last[:, None]
    drop = np.where(used, r[:, :-1] - r[:, 1:], 1.0)
    if drop.size == 0 or drop.min() < 1 or drop.max() > DROPS or (x < r / 4).any():
        return _tail(x, r, share)
    m, k, term, gain = (x + r)[:, :-1], r[:, :-1], edge[:, :-1], np.zeros(drop.shape)
    for i in range(int(drop.max())):
        gain += np.where(i < drop, term, 0.0)
        term = term * (odds * k / (m - k + 1))
        k = k - 1
    gain = np.where(used, gain - (1 - share) * edge[:, 1:], 0.0)
    row = np.arange(len(last)), last
    end = _tail(x[row], r[row], share[:, 0])[:, None]
    return np.hstack([end + np.cumsum(gain[:, ::-1], axis=1)[:, ::-1], end])


def _stirling(k: Floats | Ints) -> Floats:
    """`c(k) = log k! − k log k + k`, from k = 16 on by Stirling's series."""
    a, b = np.minimum(k, 16.0), np.maximum(k, 16.0)
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / b**2) / b**2) / b**2) / b**2) / b
    small = special.gammaln(a + 1) - special.xlogy(a, a) + a
    return np.asarray(np.where(np.asarray(k) < 16, small, np.log(2 * np.pi * b) / 2 + series))


def _normal_series(z: Floats, order: int) -> Floats:
    """The Taylor coefficients of φ at z, from φ' = −zφ; at least one."""
    c = np.empty((max(order, 1), *z.shape))
    c[0] = density(z)
    for k in range(1, len(c)):
        c[k] = -(z * c[k - 1] + (c[k - 2] if k > 1 else 0.0)) / k
    return c


def _logarithmic(value: Floats, slope: Floats) -> Floats:
    """The Taylor coefficients of (log g)' from g and those of g'."""
    h = np.empty_like(slope)
    for k in range(len(slope)):
        h[k] = (slope[k] - sum(h[i] * slope[k - i - 1] / (k - i) for i in range(k))) / value
    return h


def _cells(n: int, points: Floats, t: float) -> Floats:
    """An upper bound on P(R) in each cell between neighbouring points: rows z, mass left out, Taylor coefficients."""
    a, b = points[0, :-1], points[0, 1:]
    width, power = b - a, np.arange(ORDER + 1)[:, None]
    ends = BERNSTEIN @ (points[2:, :-1] * width**power), BERNSTEIN @ (points[2:, 1:] * (-width) ** power)
    polynomial = np.maximum(*(coefficients.max(axis=0) for coefficients in ends))
    r = width * RADII

    def change(largest: Floats, nearest: Floats) -> Floats:
        v = np.maximum(largest, 1e-3)
        return np.asarray(density(nearest) * np.exp(r**2 / 2) * np.expm1(v * r) / v)

    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        dj = change(np.abs(a), b)
        d1 = change(np.maximum(np.abs(a + t), np.abs(b + t)), np.clip(0.0, a + t, b + t))
        rest = np.maximum(special.ndtr(-b - t) - special.ndtr(b) - 1e-15, 0.0)  # at least
        x = n * (dj**2 / special.ndtr(a) + d1**2 / special.ndtr(a + t) + (dj + d1) ** 2 / rest)
        growth = np.exp(x / 2)
        remainder = (growth * (0.5 / RADII) ** (2 * ORDER + 2)).min(axis=0)
        spread = (growth * (RADII ** -power.T.astype(np.float64) @ BERNSTEIN[-1])[:, None]).min(axis=0)
        known = polynomial + spread * np.sqrt(np.maximum(points[1, :-1], points[1, 1:]))
        e = remainder + rounding(n) * spread
        bound = (e / 2 + np.sqrt(e**2 / 4 + known)) ** 2
    return np.where(np.isnan(bound), np.inf, bound)
