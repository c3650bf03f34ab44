"""The radius from one bound on `F̃_1 − b F̃_j`, the pair of a candidate and a rival."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import ArrayLike, NDArray
from scipy import special

from smoothcert.errors import InputError
from smoothcert.radii.gaussian import Floats, probabilities, sigmas
from smoothcert.radii.lipschitz import constants, s0

HALVINGS = 48
INNER_HALVINGS = 36
DISTRIBUTION_ERROR = 1e-12  # more than the distribution function below loses
STEEPEST = 1e3

FEW, NEAR = 16, 2.0**-30
"""Rivals of each input that are bounded at once, and how far beyond the least of them the others are looked at."""


def pair(bound: ArrayLike, slope: ArrayLike, sigma: ArrayLike, lipschitz: ArrayLike = np.inf) -> Floats:
    """The largest r with `sup_q [h(s0(q) − 2r) − b q] ≤ bound`, b the slope; 0 where there is none.

    If `F̃_1(x) − b F̃_j(x) ≥ bound`, then at `q = F̃_j(x)` that says `h(s0(q) − 2r) ≤ F̃_1(x)`, which is
    `r ≤ ½ (s0(F̃_j) − s0(F̃_1))`: no larger than the exact radius of the pair, for every b ≥ 0 that was fixed before the
    bound. It equals `exact_mult(p1, pj)` at `bound = p1 − b pj` with the b of `slope`. L = ∞ is plain smoothing.

    >>> b = slope(0.9, 0.1, 0.12, 4.0)
    >>> round(float(pair(0.9 - b * 0.1, b, 0.12, 4.0)), 4)
    0.1803
    """
    a, b, s, w = np.broadcast_arrays(*_checked(bound, slope, sigma, lipschitz))
    shape = a.shape
    a, b, s, w = (v.ravel() for v in (a, b, s, w))
    r = np.zeros(a.size)
    some = (a > np.maximum(0.0, 1 - b)) & (b > 0)  # at r = 0 the supremum is max(0, 1 − b)
    a, b, s, w = a[some], b[some], s[some], w[some]
    r[some] = s * _largest(lambda r: np.asarray(supremum(r, b, w) <= a), a.size)
    return r.reshape(shape)


def least_pair(
    inputs: NDArray[np.int64], size: int, bound: Floats, slope: Floats, sigma: float, lipschitz: Floats
) -> Floats:
    """The least `pair(bound, slope, …)` of each of so many inputs, to the last bit; ∞ where there is none. Rival i is
    one of `inputs[i]`, and b is positive.

    A few rivals of each input are bounded, drawn with the hash of the bounds for a seed, and the others are looked at
    beyond the least of these: most of them hold there. The rest are searched in step: where some fail, those that hold
    are done with. What follows from looks on either side of that radius is not asked again, so that rivals who are
    nearly alike take no longer: the supremum grows with r, and is too large by less than 2 (1 + b) times its margin.
    """
    a, b, _, w = np.broadcast_arrays(*_checked(bound, slope, sigma, lipschitz))
    few = _few_of_each(inputs, default_rng(int.from_bytes(sha256(a.tobytes()).digest(), "big")))
    least = np.full(size, np.inf)
    np.minimum.at(least, inputs[few], pair(a[few], b[few], sigma, lipschitz[few]))

    left = np.flatnonzero(~few & (least[inputs] > 0))
    above, blur = (least[inputs] / sigma) * (1 + NEAR), 2 * (1 + b) * _margin(w)
    value = supremum(above[left], b[left], w[left])
    above[left[~(value > a[left] + blur[left])]] = np.inf
    above[a <= np.maximum(0.0, 1 - b)] = 0.0
    rest = left[~(value <= a[left] - blur[left])]
    below = (least[inputs] / sigma) * (1 - NEAR)
    below[rest[~(supremum(below[rest], b[rest], w[rest]) <= a[rest] - blur[rest])]] = 0.0

    def fit(radii: Floats) -> NDArray[np.bool_]:
        """Do all rivals hold? Those that do where others fail are left out."""
        nonlocal rest
        r = radii[inputs[rest]]
        fails = r >= above[rest]
        asked = np.flatnonzero(~fails & (r > below[rest]))
        at = rest[asked]
        fails[asked] = ~(supremum(r[asked], b[at], w[at]) <= a[at])
        fitting = np.ones(size, dtype=bool)
        fitting[inputs[rest[fails]]] = False
        rest = rest[fails | fitting[inputs[rest]]]
        return fitting

    searched = sigma * _largest(fit, size)  # endless where nobody is left
    return np.where(np.isfinite(least), np.minimum(least, searched), np.inf)


def _few_of_each(inputs: NDArray[np.int64], chance: Generator) -> NDArray[np.bool_]:
    """So many rows of each input, by chance."""
    order = chance.permutation(inputs.size)
    order = order[np.argsort(inputs[order], kind="stable")]
    few = np.zeros(inputs.size, dtype=bool)
    few[order[np.arange(inputs.size) - np.searchsorted(inputs[order], inputs[order]) < FEW]] = True
    return few


def _largest(fits: Callable[[Floats], NDArray[np.bool_]], size: int) -> Floats:
    """The largest radii that fit, in units of σ: doubled until it is too much, then halved."""
    low, high = np.zeros(size), np.ones(size)
    for _ in range(64):
        fit = fits(high)
        if not fit.any():
            break
        low, high = np.where(fit, high, low), np.where(fit, 2 * high, high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        fit = fits(middle)
        low, high = np.where(fit, middle, low), np.where(fit, high, middle)
    return low


def holds(
    radius: ArrayLike, bound: ArrayLike, slope: ArrayLike, sigma: ArrayLike, lipschitz: ArrayLike
) -> NDArray[np.bool_]:
    """Is `pair(bound, slope, …)` at least this positive radius? One look instead of a search."""
    a, b, s, w = _checked(bound, slope, sigma, lipschitz)
    r, a, b, w = np.broadcast_arrays(np.asarray(radius) / s, a, b, w)
    return np.asarray(supremum(r, b, w) <= a)


def slope(p1: ArrayLike, pj: ArrayLike, sigma: ArrayLike, lipschitz: ArrayLike = np.inf) -> Floats:
    """The slope at (pj, p1) of the curve of equal radius `p1 = h(s0(pj) − 2r)`: `I(p1) / I(pj)`, at most 1000.

    The curve is concave, since −h' is log-concave, so that its tangent lies above it and turns the pair into one
    variable.

    >>> round(float(slope(0.9, 0.1, 0.5)), 12)
    1.0
    """
    s, w = sigmas(sigma), 1 / constants(lipschitz)
    t1, tj = ((-w / 2 - s0(np.clip(probabilities(p), 1e-9, 1 - 1e-9), s, lipschitz)) / s for p in (p1, pj))
    return np.exp(np.clip(_log_density(t1, w / s) - _log_density(tj, w / s), -np.log(STEEPEST), np.log(STEEPEST)))


def supremum(r: Floats, b: Floats, w: Floats) -> Floats:
    """`sup_t [G(t + 2r) − b G(t)]`, not below its value: G the distribution function of `Z + wU`, U uniform on [−½, ½].

    With g = G', the supremum is where `g(t + 2r) = b g(t)`, one point since g is log-concave. For w = 0 it is
    `t = −r − ln(b) / 2r`. Otherwise `(log g)'(t) = −t + E[wU | Z + wU = t]` lies within w/2 of −t, and towards 0 of it:
    the point is at most w/2 further out. Where it is known to w/2 · 2^−k, G is known to 2^−(k+1), since g ≤ 1/w.
    """
    side = np.where(b > 1, -1.0, 1.0)
    low = np.abs(np.log(b)) / (2 * r)
    high = low + w / 2
    for _ in range(INNER_HALVINGS if (w > 0).any() else 0):
        middle = (low + high) / 2
        t = side * middle - r
        further = side * (_log_density(t + 2 * r, w) - _log_density(t, w) - np.log(b)) > 0
        low, high = np.where(further, middle, low), np.where(further, high, middle)
    t = side * (low + high) / 2 - r
    return np.asarray(distribution(t + 2 * r, w) - b * distribution(t, w) + (1 + b) * _margin(w))


def _margin(w: Floats) -> Floats:
    """What the supremum may lose of G."""
    return DISTRIBUTION_ERROR + np.where(w > 0, 2.0 ** -(INNER_HALVINGS + 1), 0.0)


def _log_density(t: Floats, w: Floats) -> Floats:
    """`log g(t)` up to a constant of w; where w is small, of φ."""
    x = np.abs(t)
    far, near = special.log_ndtr(-x - w / 2), special.log_ndtr(w / 2 - x)
    with np.errstate(divide="ignore"):
        wide = near + np.log(-np.expm1(far - near))
    return np.where(w > 1e-3, wide, -x * x / 2)


def distribution(t: Floats, w: Floats) -> Floats:
    """G(t) to about 1e-15: `P(Z + wU > x) = (K(x − w/2) − K(x + w/2)) / w` with `K(v) = φ(v) − v Q(v)`.

    Below w = 0.2 that cancels, and `Σ_k (w/2)^2k / (2k+1)! Φ^(2k)` is used.
    """
    x = np.abs(t)
    with np.errstate(divide="ignore", invalid="ignore"):
        closed = (_partial(x - w / 2) - _partial(x + w / 2)) / w
    xx, ww = np.minimum(x * x, 1e4), w * w
    terms = ww / 24 + ww**2 / 1920 * (xx - 3) + ww**3 / 322560 * ((xx - 10) * xx + 15)
    terms = terms + ww**4 / 92897280 * (((xx - 21) * xx + 105) * xx - 105)
    series = special.ndtr(-x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi) * terms
    tail = np.where(w < 0.2, series, closed)
    return np.where(t > 0, 1 - tail, tail)


def _partial(v: Floats) -> Floats:
    """`E max(Z − v, 0) = φ(v) − v Q(v)`."""
    return np.asarray(np.exp(-v * v / 2) / np.sqrt(2 * np.pi) - v * special.ndtr(-v))


def _checked(
    bound: ArrayLike, slope: ArrayLike, sigma: ArrayLike, lipschitz: ArrayLike
) -> tuple[Floats, Floats, Floats, Floats]:
    a, b, s = np.asarray(bound, dtype=np.float64), np.asarray(slope, dtype=np.float64), sigmas(sigma)
    if not (np.all(a <= 1) and np.all((b >= 0) & np.isfinite(b))):
        raise InputError("bounds of pairs must be at most 1, and slopes finite and not negative.")
    return a, b, s, 1 / constants(lipschitz) / s
