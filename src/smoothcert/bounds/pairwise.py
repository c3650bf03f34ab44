"""The leading class against its strongest rival, tested as one pair at the full risk, however many classes there are.

The counts of the candidate, of one rival j and of all the rest are a trinomial sample. For `t ≥ 0` let

    H_t = { p : Φ⁻¹(p_1) − Φ⁻¹(p_j) ≤ t },    with the boundary    p_1 = Φ(z + t), p_j = Φ(z), z ≤ −t/2.

H_t is convex, grows with t, and is never left by moving mass from class 1 to the rest or from the rest to class j.

**Ordering.** `D_t(x, y) = N min_{q ∈ H_t} KL(p̂ ‖ q)` is the log-likelihood ratio at p̂ = (x, y + ⅔, n − x − y) / N. It
falls with t. It grows with x and falls with y: at the minimum the ratios w = p̂/q satisfy `w_j ≤ w_rest ≤ w_1`, because
those two moves of q cannot improve it, and ∂D/∂x = log(w_1/w_rest), ∂D/∂y = log(w_j/w_rest). Outcomes are ranked by
`T(x, y) = sup {t : D_t(x, y) ≥ κ}` with κ = Φ⁻¹(α)²/2, and by D_0 where D_0 < κ. So the outcomes ranked at least as
high as the observed one are `R = {D_s ≥ k}`, (s, k) = (T, κ) or (0, D_0): one set, the same for every t that is tested.

**Test.** R grows with x and shrinks with y, so for each p_j the null's largest probability of R is on the boundary
(Barnard, 1947). With U the Clopper-Pearson upper bound on p_j at γ = α/1000 (Berger and Boos, 1994),

    p-value(t) = γ + sup { P(R) : p_1 = Φ(z + t), p_j = Φ(z) ≤ U }.

**Bound.** The nulls are nested and R does not depend on t, so the p-value grows with t and the bound
`sup {t : p-value(t) ≤ α}` needs no grid of t and no order of testing (Buehler, 1957): claiming more than the true
margin t means having rejected H_t, an event of probability at most α. A larger N_1 shrinks R; a larger N_j enlarges R
and U. Hence the bound grows with N_1 and falls with N_j, and only the rival with the largest count has to be tested.

The ⅔ makes the likelihood ratio conservative for a rare rival: it is the smallest c with `P(Poisson(μ) ≤ y) ≤ Φ(r)` for
all y and μ > y + c, r the signed root at y + c. With less, the supremum lies at p_j of a few 1/n once n ≥ 10⁵.

Every approximation is on the safe side (R enlarged, cut sums completed, tails bounded) but the search for the supremum,
for which SLACK is kept.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from smoothcert.bounds.binomial import lower_quantile, upper_quantile
from smoothcert.bounds.margins import Counts, Margins, split
from smoothcert.checks import check_alpha
from smoothcert.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHIFT = 2 / 3
GAMMA = 1e-3  # share of α that pays for the nuisance set
SLACK = (
    1e-3  # share of α kept for the search: in 1 657 random pairs, n to 10⁵, it missed at most 4.1e-4 of the supremum
)
EVEN = 1e-4  # rise of Φ⁻¹(P(R)) between neighbours at which that search ends
RESONANT = 1 + np.array([5 / 4, 4 / 3, 3 / 2, 5 / 3, 2, 5 / 2, 3, 4, 5, 6])  # slopes of a curve along the lattice


def pairwise(selections: Counts, estimations: Counts, alpha: float) -> Margins:
    """`t` of the candidate against the largest other estimation count, at the full α."""
    return Margins(pairwise_margin(*split(selections, estimations), alpha))


def pairwise_margin(n1: ArrayLike, nj: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> Floats:
    """A lower bound on `Φ⁻¹(p_1) − Φ⁻¹(p_j)` at confidence 1 − α, from the counts of n draws; arrays broadcast.

    With nj the largest count but the candidate's it bounds the margin over every rival: radius = σ t / 2.
    0 where nothing positive is proved.

    >>> pairwise_margin([900, 600], [50, 350], 1000, 0.001).round(3)
    array([2.585, 0.395])
    """
    x, y, total, a = np.broadcast_arrays(n1, nj, n, check_alpha(alpha))
    whole = all(np.all((v >= 0) & (v == np.floor(v))) for v in (x, y, total))
    if not whole or not np.all((total >= 1) & (x + y <= total)):
        raise InputError("counts must be whole numbers with n1 + nj <= n and n >= 1.")
    rows = [(int(i), int(j), int(k), float(b)) for i, j, k, b in zip(x.flat, y.flat, total.flat, a.flat, strict=True)]
    margins = _margins(list(dict.fromkeys(rows)))
    return np.array([margins[row] for row in rows]).reshape(x.shape)


def _margins(rows: list[tuple[int, int, int, float]]) -> dict[tuple[int, int, int, float], float]:
    """The bound of each row. Nearly all the time is spent in array functions, which let other threads run."""
    if len(rows) == 1:
        return {rows[0]: _margin(*rows[0])}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(rows, pool.map(lambda row: _margin(*row), rows), strict=True))


@lru_cache(maxsize=2**18)
def _margin(n1: int, nj: int, n: int, alpha: float) -> float:
    kappa = special.ndtri(min(alpha, 0.25)) ** 2 / 2
    s, k = _rank(n1, nj, n, kappa)
    if k < kappa / 2:  # an outcome this close to a tie has a p-value far above α at t = 0
        return 0.0
    level = alpha * (1 - GAMMA - SLACK)
    z_max = float(upper_quantile(nj, n, alpha * GAMMA))
    region = _region(n1, nj, n, s, k, z_max, reach=-float(special.ndtri(1e-4 * alpha)))
    # Without rest R is {y ≤ y_max}: a larger p_j than this has P(R) ≤ level whatever p_1, so it contradicts no t.
    z_max = min(z_max, float(upper_quantile(region.y_max, n, level)))
    return _limit(region, z_max, min(s, -2 * z_max), level)


def _boundary(z: Floats, t: float) -> tuple[Floats, Floats, Floats]:
    """(p_j, p_1, rest) at z; the rest is a difference of the smaller tails."""
    p1, pj, not1 = special.ndtr(z + t), special.ndtr(z), special.ndtr(-z - t)
    return pj, p1, np.maximum(not1 - pj, 0.0)


def _rank(n1: int, nj: int, n: int, kappa: float) -> tuple[float, float]:
    """(s, k) such that the outcomes ranked at least as high as (n1, nj) are {D_s ≥ k}."""
    total = n + SHIFT
    x, y, r = n1, nj + SHIFT, n - n1 - nj
    if x <= y:
        return 0.0, 0.0
    z1, zj = -float(special.ndtri((y + r) / total)), float(special.ndtri(y / total))

    def divergence(t: float) -> float:
        # p̂ lies beyond the boundary, so its projection has p_j above p̂_j and p_1 below p̂_1: a bracket for z.
        def score(z: float) -> float:
            pj, p1, rest = _normal(z), _normal(z + t), _normal(-z - t) - _normal(z)
            dj, d1 = math.exp(-z * z / 2), math.exp(-((z + t) ** 2) / 2)
            return (y * dj / pj + x * d1 / p1) * max(rest, 0.0) - r * (dj + d1)

        low, high = zj, min(-t / 2, z1 - t)
        if r == 0 or score(high) >= 0:
            z = high
        else:
            z = float(optimize.brentq(score, low, high, xtol=1e-14)) if score(low) > 0 else low
        pj, p1, rest = _normal(z), _normal(z + t), _normal(-z - t) - _normal(z)
        kl = x * math.log(x / total / p1) + y * math.log(y / total / pj)
        return kl + (r * math.log(r / total / rest) if r else 0.0)

    zero = divergence(0.0)
    if zero <= kappa:
        return 0.0, zero
    return float(optimize.brentq(lambda t: divergence(t) - kappa, 0.0, z1 - zj, xtol=1e-13)), kappa


def _normal(z: float) -> float:
    return math.erfc(-z * math.sqrt(0.5)) / 2


@dataclass(frozen=True)
class _Region:
    """The outcomes with y ≤ y_max and a rest on or below the piecewise linear curve (y, rest)."""

    n: int
    y: Floats
    rest: Floats
    y_max: int
    reach: float  # standard deviations below its mean beyond which the mass of N_j is far below α
    resonant: Floats  # the z where the curve runs along the lattice

    def most_rest(self, y: Ints) -> Floats:
        return np.floor(np.minimum(np.interp(y, self.y, self.rest), self.n - y))


def _region(n1: int, nj: int, n: int, s: float, k: float, z_max: float, reach: float) -> _Region:
    """R = {D_s ≥ k}, as the curve D_s = k.

    The frequencies whose nearest point of H_s is that at z form a ray, p̂/q = 1 + u (−a, b, …), because the score
    equation is linear in p̂; along it D = N Σ p̂ log(p̂/q) grows, and Newton finds where it is k. D is convex, so the
    curve rest(y) is convex and its chords only enlarge R.
    """
    total = n + SHIFT
    top = math.sqrt(total * special.ndtr(-s / 2))
    dense = np.arange(math.sqrt(SHIFT / 4), min(top, math.sqrt(total * special.ndtr(z_max)) + 6), 0.05)
    z = np.append(special.ndtri(dense**2 / total), -s / 2)
    pj, p1, rest = _boundary(z, s)
    dj, d1 = np.exp(-(z**2) / 2), np.exp(-((z + s) ** 2) / 2)
    share = dj / (dj + d1)
    a, b = p1 + rest * (1 - share), pj + rest * share
    q, d = np.stack([pj, p1, rest]), np.stack([-a, b, (1 - share) * b - share * a])
    u_max = (1 - 1e-12) / a
    u = np.minimum(np.sqrt(2 * k / total / (q * d**2).sum(0)), u_max)
    for _ in range(50):
        log_w = np.log1p(u * d)
        excess = (q * ((1 + u * d) * log_w - u * d)).sum(0) - k / total
        u, last = np.clip(u - excess / (q * d * log_w).sum(0), u * 1e-3, u_max), u
        if np.all(np.abs(u - last) <= 1e-13 * u):
            break
    y = total * pj * (1 - a * u) - SHIFT
    # The rounding of all this is below 1e-9 n counts; the observed outcome belongs to its own region.
    most = total * rest * (1 + d[2] * u) + 1e-9 * n
    steepness = -np.diff(most) / np.diff(y)
    resonant = np.interp(RESONANT, steepness[::-1], z[:0:-1])
    return _Region(n, y, most, max(nj, math.floor(y[-1] + 1e-9 * n)), reach, resonant)


def _probability(region: _Region, z: Floats, t: float) -> tuple[Floats, Floats]:
    """P(R) and its derivative in t at the boundary points z: Σ_y P(N_j = y) P(rest ≤ most_rest(y) | y).

    The sum runs over the y that matter. P(rest ≤ … | y) falls with y, so the mass cut off below counts whole and the
    mass cut off above with the last term's probability: an upper bound.
    """
    n = region.n
    pj, _, rest = _boundary(z, t)
    mean, spread = n * pj, np.sqrt(n * pj * (1 - pj))
    low = np.clip(np.floor(mean - region.reach * spread), 0, region.y_max).astype(np.int64)
    high = np.clip(np.ceil(mean + 4 * spread + 10), 0, region.y_max).astype(np.int64)
    size = high - low + 1
    last = np.cumsum(size) - 1
    i = np.repeat(np.arange(z.size), size)
    y = np.arange(i.size) - (last - high)[i]
    m, most, share = n - y, region.most_rest(y), (rest / (1 - pj))[i]
    tail = _binomial_cdf(most, m, share)
    mass = np.exp(_log_choose(n, y) + special.xlogy(y, pj[i]) + special.xlog1py(m, -pj[i]))
    below = np.where(low > 0, special.bdtr(low - 1.0, n, pj), 0.0)
    above = np.where(high < region.y_max, tail[last] * special.bdtrc(high, n, pj), 0.0)
    value: Floats = below + np.bincount(i, mass * tail).astype(np.float64) + above
    # d P(Bin(m, q) ≤ r)/dq = −(m − r) P(Bin(m, q) = r)/(1 − q), and dq/dt = −φ(z + t)/(1 − p_j).
    with np.errstate(divide="ignore", invalid="ignore"):
        density = np.exp(_log_choose(m, most) + special.xlogy(most, share) + special.xlog1py(m - most - 1, -share))
    slope = np.bincount(i, mass * np.where(most < m, (m - most) * density, 0.0))
    return value, slope * _density(z + t) / (1 - pj)


def _density(z: Floats) -> Floats:
    return np.asarray(np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi))


def _log_choose(n: int | Ints, k: Ints | Floats) -> Floats:
    return np.asarray(special.gammaln(n + 1.0) - special.gammaln(k + 1.0) - special.gammaln(n - k + 1.0))


def _binomial_cdf(k: Floats, m: Ints, p: Floats) -> Floats:
    """P(Bin(m, p) ≤ k) for 0 ≤ k ≤ m, or for m above 10⁶ and k above 10⁴ the bound of Zubkov and Serov (2013),

    P(Bin(m, p) ≤ k) ≤ Φ(± √(2 m KL((k + 1)/m ‖ p))), the sign that of (k + 1)/m − p; it is half a count wide.
    SciPy's `bdtr` keeps 8 digits up to m = 10⁶ and few beyond.
    """
    if m.max() <= 10**6:
        return np.where(k < m, special.bdtr(np.minimum(k, m - 1), m, p), 1.0)
    value = np.ones(k.shape)
    rare, common = k <= 10**4, (k > 10**4) & (k < m)
    value[rare] = special.betaincc(k[rare] + 1, m[rare] - k[rare], p[rare])
    k, m, p = k[common] + 1, m[common], p[common]
    with np.errstate(divide="ignore"):
        kl = special.xlogy(k, k / m / p) + special.xlogy(m - k, (m - k) / m / (1 - p))
    value[common] = special.ndtr(np.copysign(np.sqrt(2 * np.maximum(kl, 0)), k / m - p))
    return value


def _limit(region: _Region, z_max: float, t: float, level: float) -> float:
    """The largest t with P(R) ≤ level at every z ≤ z_max, or 0; t is where the search starts.

    Newton in Φ⁻¹(P(R)), which is nearly linear in t, kept within the bracket found so far. After a step far below one
    standard deviation of N_1 only the points that are predicted to come near the largest are evaluated again.
    """
    target = float(special.ndtri(level))
    low, high = -1.0, -2 * z_max
    scan = _scan(region, z_max, t, level)
    while True:
        z, root, rate = _refined(region, scan, t)
        excess = root.max() - target
        low, high = (low, t) if excess > 0 else (t, high)
        if -1e-5 <= excess <= 0 or high - max(low, 0.0) <= 1e-7:
            return max(low, 0.0)
        step = max(t - (excess + 5e-6) / rate[root.argmax()], 0.0)
        last, t = t, step if low < step < high else (max(low, 0.0) + high) / 2
        moved, change = root + rate * (t - last), math.sqrt(region.n) * abs(t - last)
        near = moved > moved.max() - 0.0005 - change / 20
        scan = z[near] if change < 0.03 else _scan(region, z_max, t, level)


def _scan(region: _Region, z_max: float, t: float, level: float) -> Floats:
    """The points z ≤ z_max at which P(R) is first evaluated.

    P(R) varies no faster than on the scale of the three standard deviations, the unit of 2√n arcsin √p; `steps` adds
    them up. The spacing is one at z_max and grows with the distance. P(R) has a peak where the curve runs along the
    lattice and, where N_1 is so much sharper than N_j that each y shows, one for each y: where N_1 comes to exceed its
    least value in R.
    """
    n = region.n
    # P(R) falls with p_j at fixed p_1, so its value at p_j = 0 settles every z ≤ z_min, whatever t ≤ −2 z_max.
    least = n - region.most_rest(np.arange(min(region.y_max, 1000) + 1))
    z_min = min(float(lower_quantile(least[0], n, level)) + 2 * z_max, z_max)
    z = np.linspace(z_min, z_max, 2001)
    pj, p1, rest = (np.arcsin(np.sqrt(p)) for p in _boundary(z, t))
    steps = 2 * math.sqrt(n) * (pj + p1 - rest)
    away = 10 * np.sinh(np.arange(10 * math.asinh((steps[-1] - steps[0]) / 10)) / 10)
    spaced = np.interp(steps[-1] - away, steps, z)
    p1 = np.minimum(least / n + np.array([[1.5], [2.5]]) * np.sqrt(least * (n - least) / n**3), 1.0)
    peak = special.ndtri(p1) - t
    peak = peak[n * _density(peak) * np.sqrt(p1 * (1 - p1) / n) < _density(peak + t)]
    return np.unique(np.clip(np.concatenate([spaced, peak, region.resonant, [z_min, z_max]]), z_min, z_max))


def _refined(region: _Region, scan: Floats, t: float) -> tuple[Floats, Floats, Floats]:
    """The scan with more points where P(R) is largest: z, Φ⁻¹(P(R)) and its derivative in t.

    The cells beside the largest local maxima are split until the steeper slope times the longer cell is below EVEN.
    """
    z, root, rate = np.empty((3, 0))
    while scan.size:
        value, slope = _probability(region, scan, t)
        probit = special.ndtri(np.clip(value, 1e-300, 1 - 1e-15))
        points = np.hstack([[z, root, rate], [scan, probit, slope / _density(probit)]])
        z, root, rate = points[:, np.argsort(points[0])]
        width, rise = (np.pad(np.diff(v), 1) for v in (z, root))
        steep = rise / np.maximum(width, 1e-300)
        rough = np.maximum(steep[:-1], -steep[1:]) * np.maximum(width[:-1], width[1:])
        largest = (rise[:-1] >= 0) & (rise[1:] <= 0) & (root > root.max() - 0.02)
        peak = np.flatnonzero(largest & (rough > EVEN))
        cell = np.unique(np.concatenate([peak - 1, peak]))
        cell = cell[(cell >= 0) & (cell < z.size - 1)]
        scan = (z[cell] + z[cell + 1]) / 2
    return z, root, rate
