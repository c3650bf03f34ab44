"""The probability of a region of trinomial outcomes: its Taylor coefficients, and a supremum that is an upper bound."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special, stats

from smoothcert.bounds import trinomial
from smoothcert.bounds.trinomial import Region, expand, supremum

Floats = NDArray[np.float64]


def probability(region: Region, z: Floats, t: float) -> Floats:
    """P(R) outcome by outcome."""
    y, r = np.meshgrid(np.arange(region.y_max + 1), np.arange(region.n + 1), indexing="ij")
    inside = r <= np.floor(np.minimum(np.interp(y, region.y, region.rest), region.n - y))
    y, r = y[inside], r[inside]
    pj, rest = special.ndtr(z), special.ndtr(-z - t) - special.ndtr(z)
    outcomes = np.stack([region.n - y - r, y, r], axis=-1)
    return np.array(
        [stats.multinomial.pmf(outcomes, region.n, [1 - a - b, a, b]).sum() for a, b in zip(pj, rest, strict=True)]
    )


def test_sums_and_their_slope_in_t() -> None:
    region = Region(60, np.array([-1.0, 8.0]), np.array([20.0, 2.0]))
    z, t = np.linspace(-2.5, -1.0, 7), 1.5
    coefficients, slope, lost = expand(region, z, t, 0, 1e-30)
    assert coefficients[0] == pytest.approx(probability(region, z, t), rel=1e-12)
    step = (probability(region, z, t + 1e-5) - probability(region, z, t - 1e-5)) / 2e-5
    assert slope == pytest.approx(step, rel=1e-5)
    assert np.all(lost <= 1e-30)
    short, _, lost = expand(region, z, t, 0, 1e-4)
    assert np.all(short[0] <= coefficients[0])
    assert np.all(short[0] + lost >= coefficients[0])


@pytest.mark.parametrize("t", [1.5, 0.3])
@pytest.mark.parametrize("z", [-2.2, -1.1, -0.7501])
@mp.workdps(50)
def test_taylor_coefficients_agree_with_mpmath(z: float, t: float) -> None:
    region = Region(30, np.array([-1.0, 5.0, 9.0]), np.array([14.5, 5.5, 0.0]))
    z = min(z, -t / 2 - 1e-4)

    def exact(v: mp.mpf) -> mp.mpf:
        pj, p1 = mp.ncdf(v), mp.ncdf(v + t)
        powers = [[p**k for k in range(31)] for p in (p1, pj, 1 - p1 - pj)]
        total = mp.mpf(0)
        for y in range(10):
            for r in range(int(region.most_rest(np.array([y]))[0]) + 1):
                ways = mp.binomial(30, y) * mp.binomial(30 - y, r)
                total += ways * powers[0][30 - y - r] * powers[1][y] * powers[2][r]
        return total

    want = mp.taylor(exact, z, trinomial.ORDER)
    found = expand(region, np.array([z]), t, trinomial.ORDER, 1e-30)[0][:, 0]
    # In units of the bound √(f e^x) / rᵏ of the module with x = 1.
    deviation = float(np.diff(trinomial.deviations(30, np.array([z, z + 1e-6]), t))[0]) / 1e-6
    for k, (a, b) in enumerate(zip(found, want, strict=True)):
        assert abs(a - float(b)) <= trinomial.rounding(30) * float(mp.sqrt(want[0])) * deviation**k


@pytest.mark.parametrize("n", [30, 1000, 100_000, 10_000_000])
@mp.workdps(50)
def test_a_term_of_the_sums_loses_a_twentieth_of_the_margin_for_rounding(n: int) -> None:
    """The edge probability of one y, from the derivative in t, and up to n = 10⁵ its binomial tail."""
    rng = np.random.default_rng(n)
    for _ in range(40):
        t = rng.uniform(0.2, 4)
        z = -t / 2 - 10 ** rng.uniform(-3, 0)
        pj, p1 = mp.ncdf(mp.mpf(z)), mp.ncdf(mp.mpf(z) + mp.mpf(t))
        share = (1 - pj - p1) / (1 - pj)
        y = int(np.clip(n * float(pj) + 2 * rng.normal() * np.sqrt(n * float(pj)), 0, n - 1))
        m = n - y
        r = int(max(m * float(share) - rng.uniform(0, 6) * np.sqrt(m * float(share)), 0))
        region, at = Region(n, np.array([-1.0, y + 0.5]), np.array([r + 0.5, r + 0.5])), np.array([y])
        (value, *_), slope, _ = trinomial._expand(region, np.array([z]), t, 1, at, at)
        mass = mp.binomial(n, y) * pj**y * (1 - pj) ** m
        edge = mp.binomial(m, r) * share**r * (1 - share) ** (m - r)
        want = mass * edge * (m - r) * mp.npdf(mp.mpf(z) + mp.mpf(t)) / p1
        assert abs(float(slope[0] / want) - 1) <= trinomial.rounding(n) / 20
        if n <= 100_000:
            tail, term, k = mp.mpf(0), edge, r
            while k >= 0 and term > tail * mp.mpf(10) ** -20:
                tail, term, k = tail + term, term * k * (1 - share) / ((m - k + 1) * share), k - 1
            assert abs(float(value[0] / (mass * tail)) - 1) <= trinomial.rounding(n) / 20


@pytest.mark.parametrize("n", [40, 3000, 100_000])
def test_tails_that_are_added_up_are_binomial_tails(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    z, t = np.array([-1.2, -0.9, -0.7]), 1.1
    pj, rest = special.ndtr(z), special.ndtr(-z - t) - special.ndtr(z)
    region = Region(n, np.array([-1.0, 0.1 * n, 0.3 * n]), np.array([0.55 * n, 0.3 * n, 0.0]))
    added = expand(region, z, t, trinomial.ORDER, 1e-25)[0]
    monkeypatch.setattr(trinomial, "DROPS", 0)
    each = expand(region, z, t, trinomial.ORDER, 1e-25)[0]
    assert added[0] == pytest.approx(each[0], rel=trinomial.rounding(n) / 10)
    scale = np.sqrt(each[0]) * np.sqrt(n / pj / rest) ** np.arange(trinomial.ORDER + 1)[:, None]
    assert np.all(np.abs(added - each) <= trinomial.rounding(n) * scale)
    assert np.any(added[0] != each[0])


curves = st.lists(st.floats(1, 8), min_size=3, max_size=12)


@settings(max_examples=300)
@given(
    st.integers(5, 60),
    curves,
    st.floats(0.05, 3),
    st.floats(0.01, 2.5),
    st.floats(0, 0.5),
    st.sampled_from([3e-4, 1e-2]),
)
def test_the_bound_is_above_every_value_for_any_falling_curve(
    n: int, drops: list[float], t: float, length: float, distance: float, room: float
) -> None:
    """Staircases that no test would choose: the proof uses nothing of how R came about."""
    rest = np.cumsum(drops[::-1])[::-1]
    region = Region(n, np.linspace(-1, min(len(drops), n - 1), rest.size), np.minimum(rest, n))
    z_max = -t / 2 - distance - 1e-6
    z = np.unique(np.append(np.linspace(z_max - length, z_max, 601), z_max - np.geomspace(1e-7, length, 200)))
    values = probability(region, z[::20], t)
    fine = expand(region, z, t, 0, 1e-30)[0][0]
    assert fine[::20] == pytest.approx(values, rel=1e-9, abs=1e-30)
    peak = int(fine.argmax())
    near = np.linspace(z[max(peak - 1, 0)], z[min(peak + 1, z.size - 1)], 101)
    top = float(expand(region, near, t, 0, 1e-30)[0][0].max())
    if top > 0.9 or top < 1e-12:
        return
    bound, _ = supremum(region, z[0], z[-1], t, top * (1 + 2 * room), room)
    assert top * (1 - 1e-12) <= bound <= top * (1 + 2 * room)
    refuted, where = supremum(region, z[0], z[-1], t, top / 2, room)
    assert expand(region, np.array([where]), t, 0, 1e-30)[0][0, 0] >= top * (1 - room)
    assert top * (1 - 1e-12) <= refuted <= top * (1 + room)


def test_where_no_bound_is_found_the_answer_is_still_a_bound() -> None:
    """A probability so small that the margin for rounding is more than the room there is."""
    region = Region(200, np.array([-1.0, 2.0]), np.array([3.0, 0.0]))
    top = float(expand(region, np.linspace(-0.5, -0.31, 101), 0.6, 0, 1e-300)[0][0].max())
    assert 1e-300 < top < 1e-26
    assert supremum(region, -0.5, -0.31, 0.6, top * 1.01, 0.01)[0] >= top
