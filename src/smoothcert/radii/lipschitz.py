"""The radii of a smoothed classifier whose components `F: R^d → [0, 1]` are L-Lipschitz.

Of all L-Lipschitz F with `F̃(x) = p` the ramp `clip(L(s − s0), 0, 1)` has the steepest smoothing (Theorem 2 of
"Bridging the Theoretical Gap in Randomized Smoothing"). The smoothed ramp is a distribution function: that of
`σZ + U/L`, Z standard normal, U uniform on [−½, ½]. So with `T(p)` its quantile,

    s0(p) = −1/(2L) − T(p),    and `s0 ∘ F̃` is 1-Lipschitz,

which makes T the exact counterpart of `σΦ⁻¹` in the plain radii (L = ∞). T is odd about p = ½, so that the upper
tail is enough; the private functions work there, in units of σ, with `w = 1/(Lσ)` the width of the ramp.

A wide ramp (Lσ small) hides what happens at its end: there s0 is of the size of σ, and T of the size of 1/L. So the
unknown is `v = T − w/2`, the distance beyond the end, and s0 is `v` or `−w − v`: nothing cancels. For 1e-12 ≤ Lσ ≤ 1e12
and p from 1e-300 to 1 − 1e-16, v is right to `ERROR (1 + |v|)` and T to `ERROR (1 + |v| + T)`, in units of σ. The exact
radii are lowered by that much, so that rounding does not lift them above the truth.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from smoothcert.errors import InputError
from smoothcert.radii.gaussian import Floats, mono, mult, probabilities, sigmas


def exact_mono(p1: ArrayLike, sigma: ArrayLike, lipschitz: ArrayLike) -> Floats:
    """`−1/(2L) − s0(p1)`, the largest radius true for every L-Lipschitz F; the ramp attains it.

    >>> round(float(exact_mono(0.9, 0.12, 4.0)), 4)
    0.1803
    """
    p, s, w = _ramps(p1, sigma, lipschitz)
    t, v = _quantile(p, w)
    with np.errstate(over="ignore", invalid="ignore"):
        r, plain = s * (np.copysign(t, p - 0.5) - ERROR * (1 + np.abs(v) + t)), mono(p, s)
    # Rounding may hide the gain; the plain radius is then as true.
    return np.where(np.isfinite(r) & ((r >= plain) | (p < 0.5)), r, plain)


def exact_mult(p1: ArrayLike, p2: ArrayLike, sigma: ArrayLike, lipschitz: ArrayLike) -> Floats:
    """`½ (s0(p2) − s0(p1))`, at least `mult` and at least `mult_lipschitz` wherever p1 ≥ p2.

    >>> round(float(exact_mult(0.9, 0.1, 0.12, 4.0)), 4)
    0.1803
    """
    a, s, w = _ramps(p1, sigma, lipschitz)
    b = probabilities(p2)
    (ta, va), (tb, vb) = _quantile(a, w), _quantile(b, w)
    with np.errstate(over="ignore", invalid="ignore"):
        side, apart = np.where(a < 0.5, -1.0, 1.0), (a < 0.5) != (b < 0.5)
        gap = side * np.where(apart, ta + tb, va - vb)
        error = ERROR * (2 + np.abs(va) + np.abs(vb) + np.where(apart, ta + tb, 0.0))
        r, plain = s * (gap - error) / 2, mult(a, b, s)
    return np.where(np.isfinite(r) & ((r >= plain) | (a < b)), r, plain)


def mono_lipschitz(p1: ArrayLike, sigma: ArrayLike, lipschitz: ArrayLike, rho: ArrayLike = 0.0) -> Floats:
    """`R_monoLip = Φ⁻¹(p1) / L(Φ⁻¹∘F̃, B(x, ρ))`, the paper's radius.

    >>> round(float(mono_lipschitz(0.9, 0.12, 4.0)), 4)
    0.1774
    """
    p, s, w = _ramps(p1, sigma, lipschitz)
    with np.errstate(over="ignore", invalid="ignore"):
        r = s * special.ndtri(p) * _slope(p, w, _ball(rho, s))
    return np.where(np.isfinite(r), r, mono(p, s))


def mult_lipschitz(
    p1: ArrayLike, p2: ArrayLike, sigma: ArrayLike, lipschitz: ArrayLike, rho: ArrayLike = 0.0
) -> Floats:
    """`R_multiLip = ½ (Φ⁻¹(p1) / L(Φ⁻¹∘F̃_1, B(x, ρ)) − Φ⁻¹(p2) / L(Φ⁻¹∘F̃_2, B(x, ρ)))`, the paper's radius.

    >>> round(float(mult_lipschitz(0.6, 0.1, 0.12, 4.0)), 4)
    0.1067
    """
    a, s, w = _ramps(p1, sigma, lipschitz)
    b, ball = probabilities(p2), _ball(rho, s)
    with np.errstate(over="ignore", invalid="ignore"):
        r = s * (special.ndtri(a) * _slope(a, w, ball) - special.ndtri(b) * _slope(b, w, ball)) / 2
    return np.where(np.isfinite(r), r, mult(a, b, s))


def smoothed_lipschitz(p: ArrayLike, sigma: ArrayLike, lipschitz: ArrayLike, rho: ArrayLike = 0.0) -> Floats:
    """`L(Φ⁻¹∘F̃, B(x, ρ))` of Theorem 2 where `F̃(x) = p`; never above 1/σ, its value for L = ∞.

    The ratio `I(p') / φ(Φ⁻¹(p'))` grows with |p' − ½|, and `s0∘F̃` is 1-Lipschitz: the supremum over every
    value that F̃ can take in the ball is the ratio at `|T(p)| + ρ`.

    >>> round(float(smoothed_lipschitz(0.9, 0.12, 4.0)), 4)
    7.2229
    """
    p, s, w = _ramps(p, sigma, lipschitz)
    slope = _slope(p, w, _ball(rho, s))
    with np.errstate(over="ignore"):
        return np.asarray(1 / (s * np.where(np.isfinite(slope), slope, 1.0)))


def s0(p: ArrayLike, sigma: ArrayLike, lipschitz: ArrayLike) -> Floats:
    """The s with `1 − L ∫_s^{s+1/L} Φ_σ = p`: where the steepest ramp with `F̃(x) = p` starts.

    >>> round(float(s0(0.9, 0.12, 4.0)), 4)
    -0.3053
    """
    p, s, w = _ramps(p, sigma, lipschitz)
    _, v = _quantile(p, w)
    with np.errstate(over="ignore", invalid="ignore"):
        start = s * np.where(p < 0.5, v, -w - v)
        return np.where(np.isfinite(start), start, -0.5 / constants(lipschitz) - mono(p, s))


def constants(lipschitz: ArrayLike) -> Floats:
    """L as float64, refused unless positive; ∞ stands for a classifier without a constant."""
    a = np.asarray(lipschitz, dtype=np.float64)
    if not np.all(a > 0):
        raise InputError("the Lipschitz constant must be positive.")
    return a


def _ball(rho: ArrayLike, sigma: Floats) -> Floats:
    a = np.asarray(rho, dtype=np.float64)
    if not np.all(a >= 0):
        raise InputError("rho, the radius of the ball, must not be negative.")
    with np.errstate(over="ignore"):
        return np.asarray(a / sigma)


def _ramps(p: ArrayLike, sigma: ArrayLike, lipschitz: ArrayLike) -> tuple[Floats, Floats, Floats]:
    s = sigmas(sigma)
    with np.errstate(over="ignore", under="ignore"):
        return probabilities(p), s, 1 / constants(lipschitz) / s


ERROR = 1e-14

# Below this value of w·max(1, z) four terms of the series are exact; above it the closed form is.
_SERIES = 0.2
_ROOT = np.sqrt(2 * np.pi)
_NEWTON_STEPS = 30
_BLOCK = 1 << 14


def _blockwise(function: Callable[[Floats, Floats], Floats], x: Floats, w: Floats) -> Floats:
    """`function` on broadcast arrays, a block at a time: its temporaries stay in the cache."""
    x, w = np.broadcast_arrays(x, w)
    points, widths = x.ravel(), w.ravel()
    with np.errstate(all="ignore"):
        blocks = [slice(i, i + _BLOCK) for i in range(0, max(points.size, 1), _BLOCK)]
        out = np.concatenate([function(points[block], widths[block]) for block in blocks], axis=-1)
    return out.reshape((*out.shape[:-1], *x.shape))


def _quantile(p: Floats, w: Floats) -> Floats:
    """`|T(p)|/σ`, T the quantile of `Z + wU`, and how far it is beyond w/2; NaN where floating point has none."""
    return _blockwise(_upper_quantile, np.minimum(p, 1 - p), w)


def _upper_quantile(q: Floats, w: Floats) -> Floats:
    """The t ≥ 0 with `P(Z + wU > t) = q`, and `v = t − w/2`, by Newton's method on log P inside a bracket.

    The bracket: `Z + wU` is more dispersed than Z and than wU; conversely T is concave in z = Φ⁻¹(p), U ≤ ½,
    and `w P(Z + wU > w/2 + v)` is at most Q(v) for v ≥ 0 and at most φ(0) − v for v ≤ 0. log P is concave, so
    from the upper end Newton's method descends to the root and never passes it.
    """
    z = -special.ndtri(q)
    t, _ = _series(z, w)
    v = t - w / 2
    far = w * np.maximum(z, 1) >= _SERIES
    z, w, q = z[far], w[far], q[far]
    peak = 1 / _ROOT
    least, most = np.maximum(z, w * (0.5 - q)), np.minimum(z + w / 2, z * w * peak / special.erf(w / np.sqrt(8)))
    lower = np.maximum(z - w / 2, -w * q)
    upper = np.where(w * q < peak, -special.ndtri(np.minimum(w * q, 0.5)), peak - w * q)
    upper = np.maximum(np.minimum(upper, np.minimum(z, most - w / 2)), lower)
    x, log_q = upper, np.log(q)
    for _ in range(_NEWTON_STEPS):
        log_tail, hazard = _tail(x, w, _second_mills)
        step = (log_tail - log_q) / hazard
        x = np.clip(x + step, lower, upper)
        converged = np.abs(step) <= 1e-8 * (1 + np.abs(x))
        if (converged | np.isnan(step)).all():
            break
    v[far] = np.where(converged, x, np.nan)
    t[far] = np.clip(v[far] + w / 2, least, most)
    return np.stack([t, v])


def _slope(p: Floats, w: Floats, ball: Floats) -> Floats:
    """`dT/dz = φ(z) / I` at `|T(p)| + ball`, where it is smallest in the ball; NaN as `_quantile`."""
    return _blockwise(_slope_at, _quantile(p, w)[1] + ball, w)


def _slope_at(v: Floats, w: Floats) -> Floats:
    """`dT/dz` at T = v + w/2 ≥ 0: the hazard rate of Z at z over that of Z + wU at T."""
    x = v + w / 2
    z = x / (1 + w * w / 24)
    t, slope = _series(z, w)
    _, slope = _series(z - (t - x) / slope, w)
    far = w * np.maximum(x, 1) >= _SERIES
    log_tail, hazard = _tail(v[far], w[far], _second_mills_far)
    slope[far] = 1 / (_mills(-special.ndtri_exp(log_tail)) * hazard)
    return np.maximum(slope, 1.0)


def _series(z: Floats, w: Floats) -> tuple[Floats, Floats]:
    """T and dT/dz as a power series in w², from `Σ_k (w/2)^2k / (2k+1)! Φ^(2k)(T) = Φ(z)`."""
    zz, ww = z * z, w * w
    a, b, c, d = ww / 24, ww**2 / 5760, ww**3 / 2903040, ww**4 / 1393459200
    t = 1 + a - b * (2 * zz - 1) + c * ((16 * zz - 34) * zz - 33) - d * (((144 * zz - 668) * zz - 628) * zz - 87)
    slope = 1 + a - b * (6 * zz - 1) + c * ((80 * zz - 102) * zz - 33)
    return z * t, slope - d * (((1008 * zz - 3340) * zz - 1884) * zz - 87)


def _tail(v: Floats, w: Floats, second_mills: Callable[[Floats, Floats], Floats]) -> tuple[Floats, Floats]:
    """The logarithm of `P(Z + wU > w/2 + v)` and the hazard rate of Z + wU there.

    `P = (K(v) − K(u)) / w` with `K(v) = φ(v) − v Q(v)` and `u = v + w`. `φ(u) = e^{−(v + w/2) w} φ(v)`: beyond the ramp
    (v ≥ 0) φ(v) is a factor of both and Mills ratios remain, so that nothing under- or overflows. Within it
    `K(v) = |v| + K(|v|)`.
    """
    a, u, beyond = np.abs(v), v + w, v >= 0
    density, decay = np.exp(-a * a / 2) / _ROOT, np.exp(-(v + w / 2) * w)
    mv, mu = _mills(a), _mills(u)
    k = second_mills(a, mv) - decay * second_mills(u, mu)
    tail = np.where(beyond, k, a + density * k)
    rate = np.where(beyond, mv - decay * mu, 1 - density * (mv + decay * mu))
    return np.log(tail / w) - np.where(beyond, a * a / 2 + np.log(_ROOT), 0.0), rate / tail


def _mills(v: Floats) -> Floats:
    """`Q(v) / φ(v)`."""
    return np.asarray(np.sqrt(np.pi / 2) * special.erfcx(v / np.sqrt(2)))


def _second_mills(v: Floats, mills: Floats) -> Floats:
    """`K(v) / φ(v) = 1 − v Q(v)/φ(v)`, which loses digits like v²."""
    return 1 - v * mills


def _second_mills_far(v: Floats, mills: Floats) -> Floats:
    """The same to all digits: beyond 4 by `c / (v + c)`, `c = 1/(v + 2/(v + 3/(v + …)))`."""
    k = _second_mills(v, mills)
    far = v > 4
    x, c = v[far], np.zeros(np.count_nonzero(far))
    for n in range(32, 0, -1):
        c = n / (x + c)
    k[far] = c / (x + c)
    return k
