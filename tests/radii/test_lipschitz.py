"""The Lipschitz radii against mpmath, against each other, and on classifiers whose smoothing is known."""

from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from smoothcert import radii
from smoothcert.errors import InputError
from smoothcert.experiments.radii_figure import where_it_loses


def log_uniform(low, high):
    return st.floats(low, high).map(lambda e: 10.0**e)


tails = log_uniform(-12, -0.31)
near_half = st.floats(-15, -1).map(lambda e: 0.5 + 10.0**e)
probability = (tails | tails.map(lambda p: 1 - p) | near_half | near_half.map(lambda p: 1 - p)).map(
    lambda p: min(max(p, 1e-12), 1 - 1e-12)
)
steepness = log_uniform(-3, 6)  # L σ
sigma = log_uniform(-2, 1)
ball = st.just(0.0) | log_uniform(-2, 1)


# An independent computation: h(s) = 1 − L ∫_s^{s+1/L} Φ_σ in 40 digits, in units of σ, in the upper tail.


def normal_tail(v):
    return mp.erfc(v / mp.sqrt(2)) / 2


def ramp_tail(x, w):
    """1 − h at s = −w/2 − x: `(1/w) ∫_{x−w/2}^{x+w/2} Q`."""

    def primitive(v):
        return mp.npdf(v) - v * normal_tail(v)

    return (primitive(x - w / 2) - primitive(x + w / 2)) / w


def ramp_density(x, w):
    return (normal_tail(x - w / 2) - normal_tail(x + w / 2)) / w


def root(tail, density, q, x):
    """Newton's method on the logarithm of a log-concave tail: it converges from anywhere."""
    for _ in range(200):
        t = tail(x)
        step = mp.log(t / q) * t / density(x)
        x += step
        if abs(step) < mp.mpf(10) ** -30 * (1 + x):
            return x
    raise AssertionError("the reference did not converge")


def reference(p, w, rho):
    """T, z and the slope dT/dz at |T| + ρ."""
    p, w = mp.mpf(p), mp.mpf(w)
    q, sign = min(p, 1 - p), mp.sign(p - 0.5)
    z = root(normal_tail, mp.npdf, q, mp.mpf(-special.ndtri(float(q))))
    t = root(lambda x: ramp_tail(x, w), lambda x: ramp_density(x, w), q, max(z, w * (mp.mpf(0.5) - q)))
    x = t + rho
    tail = ramp_tail(x, w)
    z_far = root(normal_tail, mp.npdf, tail, x)
    return sign * t, sign * z, mp.npdf(z_far) / ramp_density(x, w)


@settings(max_examples=200)
@given(probability, probability, steepness, sigma, ball, st.none() | log_uniform(-12, -1))
@mp.workdps(40)
def test_every_radius_agrees_with_mpmath(p1, p2, steep, s, rho, apart):
    if apart is not None:  # two p so close that the radius is a small difference
        p2 = max(p1 * (1 - apart), 1e-12)
    constant = steep / s
    big_s, big_l = mp.mpf(s), mp.mpf(constant)
    w = 1 / (big_l * big_s)
    t1, z1, slope1 = reference(p1, w, mp.mpf(rho) / big_s)
    t2, z2, slope2 = reference(p2, w, mp.mpf(rho) / big_s)
    for got, want in [
        (radii.exact_mono(p1, s, constant), big_s * t1),
        (radii.exact_mult(p1, p2, s, constant), big_s / 2 * (t1 - t2)),
        (radii.mono_lipschitz(p1, s, constant, rho), big_s * z1 * slope1),
        (radii.mult_lipschitz(p1, p2, s, constant, rho), big_s / 2 * (z1 * slope1 - z2 * slope2)),
        (radii.s0(p1, s, constant), -1 / (2 * big_l) - big_s * t1),
    ]:
        error = abs(mp.mpf(float(got)) - want)
        assert error <= 1e-10 * abs(want) or error <= 1e-13 * (s + 1 / constant)
    assert radii.smoothed_lipschitz(p1, s, constant, rho) == pytest.approx(float(1 / (big_s * slope1)), rel=1e-10)


every_tail = log_uniform(-300, -0.31) | log_uniform(-16, -0.31)
every_probability = (every_tail | every_tail.map(lambda p: 1 - p) | near_half | near_half.map(lambda p: 1 - p)).map(
    lambda p: min(max(p, 1e-300), 1 - 2.0**-53)
)


@settings(max_examples=200)
@given(every_probability, every_probability, log_uniform(-12, 12), sigma, st.none() | log_uniform(-15, -1))
@mp.workdps(70)
def test_rounding_never_lifts_a_radius_above_the_truth(p1, p2, steep, s, apart):
    """From Lσ = 1e-12 to 1e12: s0 to 1e-14 of its own size and σ, also where 1/L is 1e12 σ; exact radii from below."""
    if apart is not None:
        p2 = max(p1 * (1 - apart), 1e-300)
    p1, p2, constant = max(p1, p2), min(p1, p2), steep / s
    big_s, half = mp.mpf(s), 1 / (2 * mp.mpf(constant))
    w = 2 * half / big_s
    t1, t2 = (big_s * reference(p, w, 0)[0] for p in (p1, p2))
    for p, t in ((p1, t1), (p2, t2)):
        assert abs(mp.mpf(float(radii.s0(p, s, constant))) + half + t) <= 1e-14 * (big_s + abs(half + t))
    got = mp.mpf(float(radii.exact_mono(p1, s, constant)))
    plain = mp.mpf(float(radii.mono(p1, s)))
    assert got <= t1 or got == plain
    assert got >= t1 - 3e-14 * (big_s + half + abs(t1))
    got, truth = mp.mpf(float(radii.exact_mult(p1, p2, s, constant))), (t1 - t2) / 2
    plain = mp.mpf(float(radii.mult(p1, p2, s)))
    assert got <= truth or got == plain
    assert got >= truth - 3e-14 * (2 * big_s + 2 * half + abs(t1) + abs(t2))


def test_s0_of_a_very_flat_ramp_is_of_the_size_of_sigma():
    """Lσ = 1.25e-8: 1/L is 8e7 σ and s0 is 0.66 σ; it was 0.0076686, too large by 4 %."""
    assert float(radii.s0(1.915e-9, 0.01122, 1.115e-6)) == pytest.approx(0.007393582182380642, rel=1e-13)


def test_the_reference_is_theorem_2():
    """The closed form against the integral of the paper, by quadrature."""
    for p, constant, s in [(0.9, 4.0, 0.12), (0.3, 0.5, 0.25), (0.999, 20.0, 1.0)]:
        start = float(radii.s0(p, s, constant))
        end = start + 1 / constant
        area = integrate.quad(lambda v, s=s: special.ndtr(v / s), start, end, epsabs=1e-13)[0]
        assert 1 - constant * area == pytest.approx(p, abs=1e-11)
        steepest = constant * (special.ndtr(end / s) - special.ndtr(start / s))
        want = steepest / stats.norm.pdf(stats.norm.ppf(p))
        assert float(radii.smoothed_lipschitz(p, s, constant)) == pytest.approx(want, rel=1e-10)


def test_the_figure_of_the_paper():
    """L = 4, σ = 0.12, p2 = 0.1: the table of the theory page."""
    p1 = np.array([0.3, 0.6, 0.8, 0.9, 0.99])
    table = {
        "R_mono": (radii.mono(p1, 0.12), [None, 0.0304, 0.1010, 0.1538, 0.2792]),
        "R_monoLip": (radii.mono_lipschitz(p1, 0.12, 4), [None, 0.0359, 0.1181, 0.1774, 0.3111]),
        "exact mono": (radii.exact_mono(p1, 0.12, 4), [None, 0.0360, 0.1190, 0.1803, 0.3225]),
        "R_mult": (radii.mult(p1, 0.1, 0.12), [0.0454, 0.0921, 0.1274, 0.1538, 0.2165]),
        "R_multLip": (radii.mult_lipschitz(p1, 0.1, 0.12, 4), [0.0517, 0.1067, 0.1477, 0.1774, 0.2443]),
        "exact mult": (radii.exact_mult(p1, 0.1, 0.12, 4), [0.0530, 0.1081, 0.1497, 0.1803, 0.2514]),
    }
    for name, (got, want) in table.items():
        for g, w in zip(got, want, strict=True):
            assert w is None or abs(g - w) <= 0.5001e-4, name
    assert np.all(np.array([radii.mono(0.3, 0.12), radii.exact_mono(0.3, 0.12, 4)]) < 0)


@settings(max_examples=250)
@given(probability, probability, steepness, sigma)
def test_exact_is_the_largest(p1, p2, steep, s):
    p1, p2, constant = max(p1, p2), min(p1, p2), steep / s
    slack = 1e-12 * (s + 1 / constant)
    exact = radii.exact_mult(p1, p2, s, constant)
    assert exact >= radii.mult(p1, p2, s)
    assert exact >= radii.mult_lipschitz(p1, p2, s, constant) * (1 - 1e-11) - slack
    p1 = max(p1, 1 - p1)
    exact = radii.exact_mono(p1, s, constant)
    assert exact >= radii.mono(p1, s)
    assert exact >= radii.mono_lipschitz(p1, s, constant) * (1 - 1e-11) - slack


@settings(max_examples=250)
@given(st.floats(0.5, 1 - 1e-12), st.floats(1e-12, 0.5), steepness, sigma, ball)
def test_the_papers_radii_beat_the_plain_ones_across_one_half(p1, p2, steep, s, rho):
    constant = steep / s
    assert radii.mono_lipschitz(p1, s, constant, rho) >= radii.mono(p1, s) * (1 - 1e-14)
    assert radii.mult_lipschitz(p1, p2, s, constant, rho) >= radii.mult(p1, p2, s) * (1 - 1e-14)


def test_the_papers_radius_may_lose_to_the_plain_one_below_one_half():
    assert float(radii.mult_lipschitz(0.2, 0.01, 0.25, 0.5)) == pytest.approx(0.154, abs=5e-4)
    assert float(radii.mult(0.2, 0.01, 0.25)) == pytest.approx(0.186, abs=5e-4)


def test_the_papers_radius_may_be_negative_for_the_leading_class():
    """p₁ = 0.2, p₂ = 0.1, σ = 1: as L falls the exact radius grows, and the paper's falls below 0."""
    found = [float(radii.mult_lipschitz(0.2, 0.1, 1.0, constant)) for constant in (0.2, 0.1, 0.05)]
    assert found[0] > float(radii.mult(0.2, 0.1, 1.0)) > found[1] > 0 > found[2]
    exact = radii.exact_mult(0.2, 0.1, 1.0, [0.2, 0.1, 0.05])
    assert np.all(np.diff(exact) > 0)


def test_the_papers_radius_loses_for_flat_ramps_below_one_half_alone():
    found = where_it_loses()
    assert found["below"] > found["negative"] > 0
    assert found["below"] < 0.1 * found["points"]
    assert found["largest_p1"] < 0.5
    assert found["largest_lipschitz_times_sigma"] < 0.5
    assert found["example"]["R_multiLip"] < found["example"]["R_mult"]


@settings(max_examples=300)
@given(probability, probability, sigma, ball)
def test_a_steep_classifier_gets_the_plain_radii(p1, p2, s, rho):
    mono, mult, close = radii.mono(p1, s), radii.mult(p1, p2, s), {"rtol": 1e-12, "atol": 1e-13 * s}
    for constant in (1e9 / s, np.inf):
        np.testing.assert_allclose(radii.exact_mono(p1, s, constant), mono, **close)
        np.testing.assert_allclose(radii.mono_lipschitz(p1, s, constant, rho), mono, **close)
        np.testing.assert_allclose(radii.exact_mult(p1, p2, s, constant), mult, **close)
        np.testing.assert_allclose(radii.mult_lipschitz(p1, p2, s, constant, rho), mult, **close)
        np.testing.assert_allclose(radii.smoothed_lipschitz(p1, s, constant, rho), 1 / s, rtol=1e-12)


@given(st.floats(0, 1), st.floats(0, 1), log_uniform(-2, 2))
def test_little_noise_gives_the_radius_of_the_ramp_itself(p1, p2, constant):
    s = 1e-10 / constant
    inside = all(1e-6 < p < 1 - 1e-6 for p in (p1, p2))
    if inside:
        want = (p1 - p2) / (2 * constant)
        assert float(radii.exact_mult(p1, p2, s, constant)) == pytest.approx(want, abs=1e-8 / constant)
        want = (p1 - 0.5) / constant
        assert float(radii.exact_mono(p1, s, constant)) == pytest.approx(want, abs=1e-8 / constant)


@settings(max_examples=300)
@given(st.floats(-30, 30), st.floats(-30, 30), log_uniform(-2, 2), st.floats(0.01, 1), log_uniform(-1, 0.3))
def test_s0_of_a_smoothed_ramp_is_1_lipschitz(x, y, constant, fraction, s):
    """A ramp of slope ℓ ≤ L, smoothed in closed form: `F̃(x) = ℓσ [G((x + ½/ℓ)/σ) − G((x − ½/ℓ)/σ)]`."""
    slope = fraction * constant
    x, y = x * s / 5 + x / slope / 40, y * s / 5 + y / slope / 40

    def smoothed(v):
        def g(u):
            return u * special.ndtr(u) + np.exp(-u * u / 2) / np.sqrt(2 * np.pi)

        return np.clip(slope * s * (g((v + 0.5 / slope) / s) - g((v - 0.5 / slope) / s)), 0, 1)

    p, q = smoothed(x), smoothed(y)
    if min(p, q) > 1e-3 and max(p, q) < 1 - 1e-3:
        gap = abs(float(radii.s0(p, s, constant)) - float(radii.s0(q, s, constant)))
        assert gap <= abs(x - y) + 1e-9 * (s + 1 / constant)
        if fraction == 1:
            assert gap == pytest.approx(abs(x - y), abs=1e-9 * (s + 1 / constant))


@pytest.mark.parametrize("constant", [0.3, 2.0, 20.0])
@pytest.mark.parametrize("s", [0.1, 0.7])
def test_s0_of_a_smoothed_logistic_is_1_lipschitz(constant, s):
    """`F(x) = 1/(1 + e^{−4Lx})` has constant L; its smoothing by quadrature."""
    reach = 3 * (s + 1 / constant)
    x = np.linspace(-reach, reach, 61)
    noise = s * np.linspace(-9, 9, 20001)  # the trapezoidal rule converges exponentially here
    weights = np.exp(-((noise / s) ** 2) / 2)
    smoothed = (special.expit(4 * constant * (x[:, None] + noise)) * weights).sum(1) / weights.sum()
    start = radii.s0(smoothed, s, constant)
    assert np.all(np.diff(start) < 0)
    assert np.all(np.abs(np.diff(start)) <= np.diff(x) * (1 + 1e-8))


@settings(max_examples=50)
@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95), log_uniform(-1, 1.5), log_uniform(-1, 0))
def test_ramps_attain_the_exact_radius(p1, p2, constant, s):
    """Class 1 climbs a ramp, class 2 descends one: at the exact radius the smoothed values meet."""

    def smoothed(x, start, sign):
        def value(v):
            return np.clip(constant * (sign * v - start), 0, 1) * stats.norm.pdf(v, x, s)

        corners = sorted(sign * (start + a) for a in (0, 1 / constant))
        edges = np.unique(np.clip([x - 9 * s, *corners, x + 9 * s], x - 9 * s, x + 9 * s))
        return sum(integrate.quad(value, a, b, epsabs=1e-12)[0] for a, b in pairwise(edges))

    one, two = float(radii.s0(p1, s, constant)), float(radii.s0(p2, s, constant))
    assert smoothed(0.0, one, 1) == pytest.approx(p1, abs=1e-9)
    assert smoothed(0.0, two, -1) == pytest.approx(p2, abs=1e-9)
    r = float(radii.exact_mult(p1, p2, s, constant))
    assert smoothed(-r, one, 1) == pytest.approx(smoothed(-r, two, -1), abs=1e-8)
    r = float(radii.exact_mono(p1, s, constant))
    assert smoothed(-r, one, 1) == pytest.approx(0.5, abs=1e-8)


@settings(max_examples=200)
@given(st.floats(0.01, 0.99), log_uniform(-1, 1), sigma, st.floats(0, 1.5))
def test_rho_takes_the_supremum_over_all_values_in_the_ball(p, steep, s, rho):
    """In the ball F̃ can take the values that the steepest ramp takes between −ρ and ρ, and no others."""
    constant, rho = steep / s, rho * s
    ramp = float(radii.s0(p, s, constant)) + rho * np.linspace(-1, 1, 201)
    a, b = ramp / s, (ramp + 1 / constant) / s
    values = 1 - steep * (b * special.ndtr(b) + stats.norm.pdf(b) - a * special.ndtr(a) - stats.norm.pdf(a))
    ratios = constant * (special.ndtr(b) - special.ndtr(a)) / stats.norm.pdf(stats.norm.ppf(values))
    assert float(radii.smoothed_lipschitz(p, s, constant, rho)) == pytest.approx(ratios.max(), rel=1e-7)


@settings(max_examples=100)
@given(steepness)
def test_the_ratio_grows_away_from_one_half(steep):
    p = np.concatenate([np.linspace(0.5, 0.99, 200), 1 - 10.0 ** np.linspace(-2, -12, 200)])
    ratio = radii.smoothed_lipschitz(p, 1.0, steep)
    assert np.all(np.diff(ratio) >= -1e-12)
    assert np.all(ratio <= 1)


def test_certainty_falls_back_to_the_plain_radii_for_both_classes():
    for p1, p2 in [(1.0, 0.3), (0.6, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 0.0), (0.0, 0.4)]:
        plain = float(radii.mult(p1, p2, 0.5))
        assert float(radii.exact_mult(p1, p2, 0.5, 2.0)) == plain
        assert float(radii.mult_lipschitz(p1, p2, 0.5, 2.0, 0.1)) == plain
    assert radii.exact_mono([0.0, 1.0], 0.5, 2.0).tolist() == [-np.inf, np.inf]
    assert radii.mono_lipschitz([0.0, 1.0], 0.5, 2.0).tolist() == [-np.inf, np.inf]
    assert radii.s0([0.0, 1.0], 0.5, 2.0).tolist() == [np.inf, -np.inf]
    assert float(radii.smoothed_lipschitz(1.0, 0.5, 2.0)) == 2.0


@pytest.mark.filterwarnings("error")
@settings(max_examples=300)
@given(
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(5e-324, 1e300),
    st.floats(5e-324, np.inf),
    st.floats(0, np.inf),
)
def test_valid_input_never_raises_or_warns_and_never_gives_nan(p1, p2, s, constant, rho):
    for radius in (
        radii.exact_mono(p1, s, constant),
        radii.exact_mult(p1, p2, s, constant),
        radii.mono_lipschitz(p1, s, constant, rho),
        radii.mult_lipschitz(p1, p2, s, constant, rho),
        radii.smoothed_lipschitz(p1, s, constant, rho),
    ):
        assert not np.isnan(radius)


def test_arrays_broadcast():
    p1, constant, rho = (
        np.full((3, 1, 1), 0.8),
        np.array([[1.0], [np.inf]]),
        np.array([0.0, 0.1, 0.2, np.inf]),
    )
    assert radii.exact_mult(p1, [0.1, 0.2, 0.3, 0.4], 0.5, constant).shape == (3, 2, 4)
    assert radii.mult_lipschitz(p1, 0.1, 0.5, constant, rho).shape == (3, 2, 4)
    assert radii.smoothed_lipschitz(p1, 0.5, constant, rho).shape == (3, 2, 4)
    assert np.shape(radii.s0(0.9, 0.5, 1.0)) == ()
    assert radii.exact_mono([], 0.5, 1.0).shape == (0,)
    many = radii.exact_mono(np.linspace(0.01, 0.99, 40001), 0.5, 1.0)
    assert np.all(np.diff(many) > 0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: radii.exact_mono(1.5, 1.0, 1.0), "between 0 and 1"),
        (lambda: radii.exact_mult(0.9, np.nan, 1.0, 1.0), "between 0 and 1"),
        (lambda: radii.mult_lipschitz(-0.1, 0.1, 1.0, 1.0), "between 0 and 1"),
        (lambda: radii.mono_lipschitz(0.9, -1.0, 1.0), "sigma must be positive"),
        (lambda: radii.exact_mono(0.9, 1.0, 0.0), "Lipschitz constant must be positive"),
        (lambda: radii.exact_mult(0.9, 0.1, 1.0, -2.0), "Lipschitz constant must be positive"),
        (lambda: radii.s0(0.9, 1.0, np.nan), "Lipschitz constant must be positive"),
        (lambda: radii.smoothed_lipschitz(0.9, 1.0, 1.0, -0.1), "must not be negative"),
        (lambda: radii.mono_lipschitz(0.9, 1.0, 1.0, np.nan), "must not be negative"),
    ],
)
def test_bad_input_is_one_sentence(call, says):
    with pytest.raises(InputError, match=says) as error:
        call()
    assert str(error.value).count(".") == 1
