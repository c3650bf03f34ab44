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

**Proof.** What is returned is a t slightly below that bound for which `p-value(t) ≤ α` is proved. So it exceeds neither
the bound of the observed pair nor that of the true runner-up, which has no more votes. A search on a few points
proposes t; `trinomial.supremum` then bounds P(R) over the whole range of z from above, and a t that it does not confirm
is lowered. R is replaced by a slightly larger set, sums are completed, and rounding has its margin. An α below what
double precision can tell (it depends on n alone) gets Clopper-Pearson bounds at α/2 instead, and so do more than a
million draws: time grows with n, and the two bounds come together.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from smoothcert.bounds.binomial import lower_quantile, upper_quantile
from smoothcert.bounds.method import Counts, MarginBound, split
from smoothcert.bounds.trinomial import Region, density, deviations, expand, rounding, supremum
from smoothcert.checks import check_alpha
from smoothcert.errors import InputError

Floats = NDArray[np.float64]

SHIFT = 2 / 3
GAMMA = 1e-3  # share of α that pays for the nuisance set
BOUNDS_ERROR = 1e-6  # share of α that pays for the rounding of Clopper-Pearson bounds, which are right to 1e-10
DROP = 1e-4  # what t is lowered by to leave room for the proof: so much, but between
ROOM = 3e-4, 2e-2  # these shares of the level
MOST = 1_000_000  # draws


def pairwise(selections: Counts, estimations: Counts, alpha: float) -> MarginBound:
    """`t` of the candidate against the largest other estimation count, at the full α."""
    return MarginBound(pairwise_margin(*split(selections, estimations), alpha))


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


def margin_at_most(n1: ArrayLike, nj: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> Floats:
    """What `pairwise_margin` never exceeds, in microseconds.

    R has all outcomes x ≥ N_1, y ≤ N_j, so t is not proved where these have a probability above α at a point of the
    boundary. Without rest they are {y ≤ N_j}: t is at most twice the bound of n − N_j votes against N_j. Elsewhere they
    have at least `P(X ≥ N_1) P(Y ≤ N_j)`, since the counts of two classes are negatively associated (Joag-Dev and
    Proschan, 1983): t is at most where these two are γ and α/γ, for any γ with classes that leave room for each other.
    """
    n1, nj, n, alpha = np.broadcast_arrays(n1, nj, n, check_alpha(alpha))
    least = 2 * lower_quantile(n - nj, n, alpha)
    for part in (0.1, 0.3, 0.5, 0.7, 0.9, 0.98):
        first = lower_quantile(n1, n, alpha ** (1 - part))
        second = upper_quantile(nj, n, alpha**part)
        with np.errstate(invalid="ignore"):  # infinite where there is no vote, or no other
            least = np.where(first + second < 0, np.minimum(least, first - second), least)
    return np.asarray(least)


def _margins(rows: list[tuple[int, int, int, float]]) -> dict[tuple[int, int, int, float], float]:
    """The bound of each row. Nearly all the time is spent in array functions, which let other threads run."""
    if len(rows) == 1:
        return {rows[0]: _margin(*rows[0])}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(rows, pool.map(lambda row: _margin(*row), rows), strict=True))


@lru_cache(maxsize=2**18)
def _margin(n1: int, nj: int, n: int, alpha: float) -> float:
    if n > MOST or rounding(n) > 0.005 * math.sqrt(alpha):  # α ≤ 5e-18 at n = 1 000, 4e-12 at a million: no proof
        return max(float(lower_quantile(n1, n, alpha / 2) - upper_quantile(nj, n, alpha / 2)), 0.0)
    kappa = special.ndtri(min(alpha, 0.25)) ** 2 / 2
    s, k = _rank(n1, nj, n, kappa)
    if k < kappa / 2:  # an outcome this close to a tie has a p-value far above α at t = 0
        return 0.0
    level = alpha * (1 - GAMMA - BOUNDS_ERROR)
    z_max = float(upper_quantile(nj, n, alpha * GAMMA))
    region = _region(n, s, k, z_max)
    # Without rest R is {y ≤ y_max}: a larger p_j than this has P(R) ≤ level whatever p_1, so it contradicts no t.
    z_max = min(z_max, float(upper_quantile(region.y_max, n, level)))
    return _limit(region, s, z_max, level)


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


def _region(n: int, s: float, k: float, z_max: float) -> Region:
    """R = {D_s ≥ k}, as the curve D_s = k.

    The frequencies whose nearest point of H_s is that at z form a ray, p̂/q = 1 + u (−a, b, …), because the score
    equation is linear in p̂; along it D = N Σ p̂ log(p̂/q) grows, and Newton finds where it is k. At a point of the ray
    that divergence from q is at least D, whatever Newton did, so a point where it is below k is not in R. D is convex,
    so the curve rest(y) is convex, and the chords of points beyond it only enlarge R. `margin` is far above the
    rounding of D, here and in (s, k): the observed outcome belongs to its own region.
    """
    total, margin = n + SHIFT, 1e-12 * n
    top = math.sqrt(total * special.ndtr(-s / 2))
    dense = np.arange(math.sqrt(SHIFT / 4), min(top, math.sqrt(total * special.ndtr(z_max)) + 6), 0.05)
    z = np.append(special.ndtri(dense**2 / total), -s / 2)
    pj, p1, rest = special.ndtr(z), special.ndtr(z + s), np.maximum(special.ndtr(-z - s) - special.ndtr(z), 0.0)
    dj, d1 = density(z), density(z + s)
    share = dj / (dj + d1)
    a, b = p1 + rest * (1 - share), pj + rest * share
    q, d = total * np.stack([pj, p1, rest]), np.stack([-a, b, (1 - share) * b - share * a])

    def divergence(u: Floats) -> Floats:
        return np.asarray((q * ((1 + u * d) * np.log1p(u * d) - u * d)).sum(axis=0))

    u_max = (1 - 1e-12) / a
    u = np.minimum(np.sqrt(2 * k / (q * d**2).sum(axis=0)), u_max)
    for _ in range(50):
        excess, rate = divergence(u) - (k - 2 * margin), (q * d * np.log1p(u * d)).sum(axis=0)
        u, last = np.clip(u - excess / rate, u * 1e-3, u_max), u
        if np.all(np.abs(u - last) <= 1e-13 * u):
            break
    u = np.where(divergence(u) <= k - margin, u, 0.0)
    y, most = q[0] * (1 - a * u) - SHIFT, q[2] * (1 + d[2] * u)
    order = np.argsort(y, kind="stable")
    return Region(n, y[order], most[order])


def _limit(region: Region, s: float, z_max: float, level: float) -> float:
    """The largest t, but for the room of the proof, with P(R) ≤ level at every z ≤ z_max; or 0.

    R needs N_1 ≥ least, so with `p_1 ≤ Φ(settled)`, the Clopper-Pearson bound, P(R) ≤ level: every z ≤ settled − t is
    settled, and every t ≤ settled − z_max proved.
    """
    least = region.n - region.most_rest(np.zeros(1))[0]
    settled = float(lower_quantile(least, region.n, level))
    low, high = max(settled - z_max, 0.0), -2 * z_max
    if high - low < 1e-6:
        return max(min(low, high), 0.0)
    widen, missed = 1.0, np.empty((2, 0))
    while True:
        t, room = _search(region, s, settled, z_max, level, high, widen, missed)
        if t <= low:
            return low
        bound, z = supremum(region, settled - t, z_max, t, level, room)
        if bound <= level:
            return t
        high, widen, missed = t, 1.5 * widen, np.append(missed, [[z], [z + t]], axis=1)


def _search(
    region: Region, s: float, settled: float, z_max: float, level: float, high: float, widen: float, missed: Floats
) -> tuple[float, float]:
    """A t below `high` for which the largest P(R) on a few points is below the level by `room`; and room.

    Newton in Φ⁻¹(P(R)), which is nearly linear in t, kept within the bracket found so far. Among the points are those
    that an earlier search missed, both at their p_j and at their p_1: (z, z + t).
    """
    low = max(settled - z_max, 0.0)
    t = min(max(s, low), high) - 1e-9
    while high - low > 1e-7:
        again = np.clip([missed[0], missed[1] - t], settled - t, z_max)
        z = np.unique(np.append(_scan(region, settled - t, z_max, t), again))
        values, slopes, lost = expand(region, z, t, 0, 1e-5 * level)
        values = values[0] + lost
        i = values.argmax()
        value, slope = max(float(values[i]), 1e-300), float(slopes[i])
        room = widen * min(max(DROP * slope / value, ROOM[0]), ROOM[1])
        excess = math.log(value / level) + room
        if abs(excess) < room / 10:
            return t, room
        low, high = (low, t) if excess > 0 else (t, high)
        probit, target = special.ndtri(value), special.ndtri(level * math.exp(-room))
        step = t - float((probit - target) * density(probit)) / slope if slope else high
        t = step if low < step < high else (low + high) / 2
    return low, widen * ROOM[0]


def _scan(region: Region, z_min: float, z_max: float, t: float) -> Floats:
    """Points between z_min and z_max, close to each other near z_max.

    They are one standard deviation of the score apart there, or some where N_j is large. Where N_1 is so much sharper
    than N_j that each y shows, P(R) has a hill for each y: where N_1 comes to exceed its least value in R.
    """
    n = region.n
    z = np.linspace(z_min, z_max, 2001)
    steps = deviations(n, z, t)
    first = 10 * max(1.0, math.sqrt(n * special.ndtr(z_max)) / 50)
    away = first * np.sinh(np.arange(10 * math.asinh(steps[-1] / first) + 1) / 10)
    y = np.arange(min(region.y_max, 1000) + 1)
    least = n - y - region.most_rest(y)
    p1 = least / n + np.array([[1.0], [1.5], [2.0], [3.0]]) * np.sqrt(least * (n - least) / n**3)
    hills = special.ndtri(np.minimum(p1, 1.0)) - t
    hills = hills[n * density(hills) * np.sqrt(p1 * np.maximum(1 - p1, 0) / n) < density(hills + t)]
    hills = hills[(hills > z_min) & (hills < z_max)]
    return np.unique(np.append(np.interp(steps[-1] - away, steps, z), hills))
