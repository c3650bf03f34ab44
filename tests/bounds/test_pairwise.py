"""The pairwise bound: valid for every p, its p-value within the level, monotone, never behind the other methods."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from smoothcert.bounds.binomial import lower_quantile, upper_quantile
from smoothcert.bounds.pairwise import margin_at_most, pairwise, pairwise_margin
from smoothcert.bounds.trinomial import expand
from smoothcert.errors import InputError
from smoothcert.experiments.coverage import claims_of, coverage, worst_case

module = importlib.import_module("smoothcert.bounds.pairwise")
Floats = NDArray[np.float64]

# n, N_1, N_j and the margins at α = 0.001 of mono, cpm with c* = 3, α/2 (union), and of a pairwise test on a grid of t.
TABLE = np.array(
    [
        [1000, 1000, 0, 4.9265, 4.8202, 4.8578, 4.9255],
        [1000, 999, 0, 4.7153, 4.7219, 4.7570, 4.9071],
        [1000, 998, 1, 4.5686, 4.5544, 4.5855, 4.6995],
        [1000, 990, 5, 3.9560, 4.0487, 4.0718, 4.1720],
        [1000, 900, 50, 2.2290, 2.5187, 2.5315, 2.5850],
        [1000, 700, 300, 0.7894, 0.7636, 0.7729, 0.7892],
        [1000, 400, 100, -np.inf, 0.7069, 0.7173, 0.7942],
        [1000, 200, 50, -np.inf, 0.4219, 0.4341, 0.5426],
        [10000, 10000, 0, 6.3972, 6.3116, 6.3418, 6.3962],
        [10000, 9990, 10, 5.6372, 5.5918, 5.6080, 5.6367],
        [10000, 9980, 10, 5.3386, 5.4467, 5.4614, 5.5227],
        [10000, 9900, 50, 4.4248, 4.6161, 4.6249, 4.6599],
        [10000, 9000, 500, 2.4574, 2.7967, 2.8009, 2.8179],
        [10000, 7000, 1000, 0.9672, 1.7029, 1.7063, 1.7243],
        [10000, 5000, 4500, -np.inf, 0.0400, 0.0428, 0.0497],
        [10000, 4000, 1000, -np.inf, 0.9268, 0.9301, 0.9542],
        [10000, 2000, 500, -np.inf, 0.6827, 0.6866, 0.7202],
    ]
)


def test_no_value_is_below_that_of_testing_a_grid_of_t() -> None:
    n, n1, nj, mono, cpm, union, grid = TABLE.T
    t = pairwise_margin(n1, nj, n, 0.001)
    assert np.all(t >= grid - 0.0005)
    assert np.all(t <= grid + 0.002)
    assert np.all(t >= np.maximum(mono, union) - 0.0005)
    assert np.all(t >= cpm)


# The definition, with nothing shared with the implementation but the constants: bisection for D and for the least N_1
# in R, binomial probabilities from scipy.stats, and the supremum on fine points.


def divergence(x: ArrayLike, y: ArrayLike, n: int, t: float) -> Floats:
    """N KL(p̂ ‖ H_t); 0 inside H_t."""
    x, y = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(y, dtype=float))
    r, y, total = n - x - y, y + module.SHIFT, n + module.SHIFT
    low, high = np.full(x.shape, -30.0), np.full(x.shape, -t / 2)
    for _ in range(60):
        z = (low + high) / 2
        dj, d1 = np.exp(-(z**2) / 2), np.exp(-((z + t) ** 2) / 2)
        rest = np.maximum(special.ndtr(-z - t) - special.ndtr(z), 1e-300)
        score = y * dj / special.ndtr(z) + x * d1 / special.ndtr(z + t) - np.where(r > 0, r * (dj + d1) / rest, 0.0)
        low, high = np.where(score > 0, z, low), np.where(score > 0, high, z)
    z = np.where(r > 0, (low + high) / 2, -t / 2)
    rest = np.maximum(special.ndtr(-z - t) - special.ndtr(z), 1e-300)
    kl = special.xlogy(x, x / total) - x * special.log_ndtr(z + t) + y * (np.log(y / total) - special.log_ndtr(z))
    kl = kl + np.where(r > 0, special.xlogy(r, r / total) - r * np.log(rest), 0.0)
    return np.where(special.ndtri(np.minimum(x / total, 1)) - special.ndtri(y / total) <= t, 0.0, kl)


@dataclass(frozen=True)
class Null:
    """The outcomes ranked at least as high as the observed one, as the least N_1 for each N_j, and the nuisance set."""

    n: int
    y: NDArray[np.int64]
    least: Floats
    z_max: float

    @classmethod
    def of(cls, n1: int, nj: int, n: int, alpha: float) -> Null:
        kappa = special.ndtri(min(alpha, 0.25)) ** 2 / 2
        s, k = 0.0, float(divergence(n1, nj, n, 0.0))
        if k > kappa:
            low, high = 0.0, 20.0
            for _ in range(60):
                s = (low + high) / 2
                low, high = (s, high) if divergence(n1, nj, n, s) >= kappa else (low, s)
            s, k = low, kappa
        k = k * (1 - 1e-10)
        y = np.arange(n + 1)
        y = y[divergence(n - y, y, n, s) >= k]
        low, high = np.full(y.shape, -1.0), (n - y).astype(float)
        while np.any(high - low > 1):
            x = np.floor((low + high) / 2)
            inside = divergence(x, y, n, s) >= k
            low, high = np.where(inside, low, x), np.where(inside, x, high)
        bound = stats.beta.isf(alpha * module.GAMMA, nj + 1, n - nj) if nj < n else 1.0
        return cls(n, y, high, float(special.ndtri(bound)))

    def probability(self, z: Floats, t: float) -> Floats:
        pj, p1 = special.ndtr(z)[:, None], special.ndtr(z + t)[:, None]
        mass = stats.binom.pmf(self.y, self.n, pj)
        some = mass.max(axis=0) > 1e-25
        tail = stats.binom.sf(self.least[some] - 1, self.n - self.y[some], np.minimum(p1 / (1 - pj), 1))
        return np.asarray((mass[:, some] * tail).sum(axis=1))

    def supremum(self, t: float, density: float = 2.0) -> float:
        """The largest P(R) on `density` points for each standard deviation, more before z_max and around maxima."""
        z_max = min(self.z_max, -t / 2)
        z = np.linspace(-9, z_max, 4001)
        z = z[special.ndtr(z + t) * self.n > 1e-2]
        z = z if z.size > 1 else np.linspace(z_max - 2, z_max, 500)
        rest = np.maximum(special.ndtr(-z - t) - special.ndtr(z), 0)
        pj, p1, rest = (np.arcsin(np.sqrt(p)) for p in (special.ndtr(z), special.ndtr(z + t), rest))
        steps = 2 * np.sqrt(self.n) * (pj + p1 - rest)
        even = np.interp(np.linspace(steps[0], steps[-1], int(density * (steps[-1] - steps[0])) + 20), steps, z)
        z = np.unique(np.concatenate([even, z_max - np.geomspace(1e-6, 0.5, 60), [z_max]]))
        value = np.concatenate(
            [self.probability(part, t) for part in np.array_split(z, 1 + z.size * self.y.size // 200_000)]
        )
        largest = value.max()
        for i in [i for i in value.argsort()[::-1][:12] if value[i] > 0.97 * largest]:
            low, high = z[max(i - 1, 0)], z[min(i + 1, z.size - 1)]
            for _ in range(3):
                fine = np.linspace(low, high, 9)
                found = self.probability(fine, t)
                top, largest = found.argmax(), max(largest, found.max())
                low, high = fine[max(top - 1, 0)], fine[min(top + 1, 8)]
        return float(largest)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_no_outcome_is_missing_from_the_region_in_use(seed: int) -> None:
    rng = np.random.default_rng(seed)
    (n1, nj, n), alpha = random_pair(rng, 1000), random_level(rng)
    kappa = special.ndtri(min(alpha, 0.25)) ** 2 / 2
    s, k = module._rank(n1, nj, n, kappa)
    assume(k >= kappa / 2)
    region, null = (
        module._region(n, s, k, float(upper_quantile(nj, n, alpha * module.GAMMA))),
        Null.of(n1, nj, n, alpha),
    )
    assert region.y_max >= null.y[-1] >= nj
    least = n - null.y - region.most_rest(null.y)
    assert np.all(least <= null.least)
    assert least[nj] == n1  # and the observed outcome is at its edge


def check_level(n1: int, nj: int, n: int, alpha: float) -> None:
    """The p-value of the t that is returned is at most α."""
    t = float(pairwise_margin(n1, nj, n, alpha))
    if t > 0:
        p_value = alpha * module.GAMMA + Null.of(n1, nj, n, alpha).supremum(t)
        assert p_value <= alpha, (n1, nj, n, alpha, t, p_value / alpha)


@pytest.mark.parametrize(
    ("n1", "nj", "n", "alpha"),
    [
        (29, 2, 82, 0.001),
        (42, 8, 93, 1.3145379824389873e-05),
        (32, 0, 97, 1.5560526230217165e-10),
        (36, 4, 67, 0.004415885494348542),
        (1124, 358, 1545, 0.0011057035338865372),
    ],
)
def test_the_hill_before_the_end_of_the_nuisance_set_is_not_missed(n1: int, nj: int, n: int, alpha: float) -> None:
    """A search on points missed it: the p-values were 1.0008, 1.0021, 1.0012, 1.0007 and 1.0003 α."""
    check_level(n1, nj, n, alpha)


def random_pair(rng: np.random.Generator, most: int) -> tuple[int, int, int]:
    while True:
        n = int(np.exp(rng.uniform(np.log(2), np.log(most + 1))))
        n1, nj, _ = (int(k) for k in rng.multinomial(n, rng.dirichlet(rng.choice([0.3, 1, 3], size=3))))
        if n1 > nj:
            return n1, nj, n


def random_level(rng: np.random.Generator) -> float:
    return float(10 ** rng.uniform(-10, -0.5))


def bulge(n1: int, nj: int, n: int, alpha: float) -> float:
    """By how much of α P(R) rises and falls again just before z_max, less what it lies below α."""
    t = float(pairwise_margin(n1, nj, n, alpha))
    if t == 0:
        return -np.inf
    null = Null.of(n1, nj, n, alpha)
    value = null.probability(min(null.z_max, -t / 2) - np.linspace(0.15, 0, 13), t) / alpha
    return float(value.max() - max(value[0], value[-1]) + value.max())


def check_levels(seed: int, pairs: int, most: int) -> None:
    """Half of the levels are those, of five, at which the hill before z_max is the worst."""
    rng = np.random.default_rng(seed)
    for i in range(pairs):
        pair = random_pair(rng, most)
        levels = [random_level(rng) for _ in range(5 if i % 2 else 1)]
        check_level(*pair, levels[int(np.argmax([bulge(*pair, alpha) for alpha in levels]))] if i % 2 else levels[0])


def test_the_p_value_of_random_pairs_is_within_the_level() -> None:
    check_levels(0, 30, 300)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_the_p_value_of_3000_random_pairs_is_within_the_level(seed: int) -> None:
    check_levels(seed, 150, 2000)


def margin_by_definition(n1: int, nj: int, n: int, alpha: float) -> float:
    null, level = Null.of(n1, nj, n, alpha), alpha * (1 - module.GAMMA)
    if null.supremum(0.0, 20) > level:
        return 0.0
    low, high = 0.0, 10.0
    for _ in range(25):
        t = (low + high) / 2
        low, high = (t, high) if null.supremum(t, 20) <= level else (low, t)
    return low


@pytest.mark.parametrize(
    ("n1", "nj", "n", "alpha"),
    [
        (4, 0, 4, 0.1),
        (5, 0, 10, 0.1),
        (7, 0, 8, 0.01),
        (8, 1, 13, 0.05),
        (9, 0, 9, 0.001),
        (14, 3, 18, 0.05),
        (12, 2, 20, 0.01),
        (18, 1, 20, 0.001),
        (3, 0, 20, 0.1),
        (2, 1, 5, 0.1),
        (16, 8, 25, 0.1),
    ],
)
def test_agrees_with_the_definition_outcome_by_outcome(n1: int, nj: int, n: int, alpha: float) -> None:
    expected = margin_by_definition(n1, nj, n, alpha)
    t = float(pairwise_margin(n1, nj, n, alpha))
    assert t <= expected + 1e-6
    assert t >= expected - 1e-3


@pytest.mark.parametrize("n", [5, 11, 20])
@pytest.mark.parametrize("alpha", [0.1, 0.01])
def test_what_is_called_a_tie_has_no_margin(n: int, alpha: float) -> None:
    """The outcomes that are answered 0 without a search are those whose p-value at t = 0 exceeds α."""
    kappa = special.ndtri(alpha) ** 2 / 2
    for n1 in range(n + 1):
        for nj in range(min(n1, n - n1) + 1):
            if 0 < module._rank(n1, nj, n, kappa)[1] < kappa / 2:
                assert margin_by_definition(n1, nj, n, alpha) == 0


PAIRS = [
    (7, 0, 8, 0.01),
    (89, 4, 137, 1e-9),
    (284, 21, 503, 2e-6),
    (720, 150, 872, 5e-4),
    (998, 1, 1000, 0.001),
    (644, 0, 650, 0.1),
    (900, 50, 1000, 0.001),
    (5000, 4500, 10_000, 0.001),
    (9980, 10, 10_000, 0.001),
    (6000, 100, 10_000, 0.1),
    (30_789, 3387, 34_748, 5e-4),
    (99_000, 100, 100_000, 0.1),
    (942_003, 19, 969_590, 1e-6),
    (600_000, 10, 1_000_000, 0.1),
    (500_000, 10, 1_000_000, 0.001),
    (158_511, 1, 440_475, 0.15),
    (500_000, 0, 1_000_000, 0.1),
]


@pytest.mark.parametrize(("n1", "nj", "n", "alpha"), PAIRS)
def test_little_of_the_level_is_given_away(n1: int, nj: int, n: int, alpha: float) -> None:
    """P(R) at the bound, on a fine grid of every scale, stays below the part of α that is left for it, but not far."""
    t = float(pairwise_margin(n1, nj, n, alpha))
    kappa = special.ndtri(alpha) ** 2 / 2
    z_max = float(upper_quantile(nj, n, alpha * module.GAMMA))
    region = module._region(n, *module._rank(n1, nj, n, kappa), z_max)
    table = np.linspace(-6, min(z_max, -t / 2 - 1e-9), 20_001)
    table = table[special.ndtr(table + t) * n > 0.1]
    angles = [np.arcsin(np.sqrt(special.ndtr(v))) for v in (table, table + t)]
    z = [np.interp(np.linspace(a[0], a[-1], 1000), a, table) for a in (*angles, angles[0] + angles[1])]
    z = np.unique(np.concatenate([*z, table[-1] - np.geomspace(1e-7, 1, 300)]))
    values, _, lost = expand(region, z, t, 0, 1e-9 * alpha)
    largest = float((values[0] + lost).max())
    assert largest <= alpha * (1 - module.GAMMA)
    assert largest >= alpha * (1 - module.GAMMA - 1.2 * module.ROOM[1])


def test_two_thirds_is_the_least_shift_that_is_conservative_for_a_rare_rival() -> None:
    y = np.arange(2000)
    for alpha in (0.1, 0.01, 0.001, 1e-9):
        z = -special.ndtri(alpha)

        def tail(shift: float, z: float = z) -> Floats:
            v, low, high = y + shift, y + shift, (y + shift) + 40 * (np.sqrt(y + shift) + 5)
            for _ in range(80):
                mean = (low + high) / 2
                beyond = v * np.log(v / mean) - v + mean > z * z / 2
                low, high = np.where(beyond, low, mean), np.where(beyond, mean, high)
            return np.asarray(special.pdtr(y, low))

        assert tail(2 / 3).max() <= alpha
        assert tail(0.65).max() > alpha


# Monotone, and never behind.

levels = st.sampled_from([0.1, 0.05, 0.01, 0.001, 1e-6, 1e-9])


@st.composite
def counts(draw: st.DrawFn, sizes: st.SearchStrategy[int]) -> tuple[int, int, int]:
    n = draw(sizes)
    rest = draw(st.integers(0, n))
    nj = draw(st.integers(0, (n - rest) // 2))
    return n - rest - nj, nj, n


@settings(max_examples=60)
@given(counts(st.integers(1, 400) | st.sampled_from([1000, 5000])), levels)
def test_grows_with_the_candidate_and_falls_with_the_rival(pair: tuple[int, int, int], alpha: float) -> None:
    n1, nj, n = pair
    t = float(pairwise_margin(n1, nj, n, alpha))
    if n1 + nj < n:
        assert pairwise_margin(n1 + 1, nj, n, alpha) >= t - 1e-4
        assert pairwise_margin(n1, nj + 1, n, alpha) <= t + 1e-4
    if nj:
        assert pairwise_margin(n1 + 1, nj - 1, n, alpha) >= t - 1e-4


@settings(max_examples=100)
@given(counts(st.sampled_from([1000, 2000, 10_000])), levels)
def test_is_never_behind_the_other_methods(pair: tuple[int, int, int], alpha: float) -> None:
    n1, nj, n = pair
    mono = 2 * float(lower_quantile(n1, n, alpha))
    union = float(lower_quantile(n1, n, alpha / 2) - upper_quantile(nj, n, alpha / 2))
    assume(max(mono, union) > 0)
    # Bonferroni and CPM are `union` at a smaller level, so `union` stands for them.
    assert pairwise_margin(n1, nj, n, alpha) >= max(mono, union) - 0.001


# The ends of the range.


@pytest.mark.parametrize("n", [1, 2, 10, 1000, 100_000, 1_000_000])
@pytest.mark.parametrize("alpha", [0.1, 0.001, 1e-9])
def test_without_a_single_other_vote_it_is_mono_at_the_level_that_is_left(n: int, alpha: float) -> None:
    expected = max(2 * float(lower_quantile(n, n, alpha * (1 - module.GAMMA))), 0.0)
    assert float(pairwise_margin(n, 0, n, alpha)) == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize(("n", "alpha"), [(1000, 1e-20), (100_000, 1e-15), (1000, 1e-100)])
def test_a_level_below_what_floats_can_tell_gets_two_clopper_pearson_bounds(n: int, alpha: float) -> None:
    n1, nj = n * 9 // 10, n // 20
    union = float(lower_quantile(n1, n, alpha / 2) - upper_quantile(nj, n, alpha / 2))
    assert float(pairwise_margin(n1, nj, n, alpha)) == max(union, 0.0)


@pytest.mark.parametrize("alpha", [0.1, 0.001, 1e-9])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 50, 10_000, 10_000_000])
def test_every_corner_of_the_counts_has_a_finite_answer(n: int, alpha: float) -> None:
    few = min(n, 3)
    corners = {(0, 0), (0, n), (few, 0), (n - few, few), (n // 2, n - n // 2), (n - 1, 0), (n - 1, 1), (n // 2, 0)}
    for n1, nj in corners:
        t = float(pairwise_margin(n1, nj, n, alpha))
        assert 0 <= t < 20
        assert n1 > nj or t == 0


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.1, 0.001, 1e-9])
@pytest.mark.parametrize("shares", [(0.6, 0.3), (0.5, 0.5), (0.9, 0.05), (0.3, 0.2), (0.99, 0.0001)])
def test_ten_million_draws_come_close_to_the_true_margin(shares: tuple[float, float], alpha: float) -> None:
    n, true = 10_000_000, float(special.ndtri(shares[0]) - special.ndtri(shares[1]))
    t = float(pairwise_margin(round(shares[0] * n), round(shares[1] * n), n, alpha))
    assert max(true - 0.06, 0) <= t <= true


def test_arrays_broadcast_and_bad_counts_are_refused() -> None:
    t = pairwise_margin([[70], [60]], [5, 30, 10], 100, 0.05)
    assert t.shape == (2, 3)
    assert t[1, 2] == pairwise_margin(60, 10, 100, 0.05)
    for bad in [(6, 5, 10, 0.1), (-1, 0, 10, 0.1), (1.5, 0, 10, 0.1), (0, 0, 0, 0.1), (5, 1, 10, 0), (5, 1, 10, 1)]:
        with pytest.raises(InputError):
            pairwise_margin(*bad)


def test_the_method_tests_the_largest_rival_of_the_selected_candidate() -> None:
    selections = np.array([[9, 1, 0], [0, 10, 0]])
    estimations = np.array([[70, 10, 20], [70, 10, 20]])
    assert pairwise(selections, estimations, 0.01).t.tolist() == [float(pairwise_margin(70, 20, 100, 0.01)), 0.0]


# Validity.


def test_coverage_of_the_binary_bound_is_a_binomial_tail() -> None:
    """With two classes the claim exceeds the truth when N_1 reaches a threshold: the coverage is a binomial CDF."""
    n, alpha, p = 30, 0.05, 0.8
    k = next(k for k in range(n + 1) if lower_quantile(k, n, alpha) > special.ndtri(p))
    found = coverage(lambda rows: 2 * lower_quantile(rows[:, 0], n, alpha), [p, 1 - p], n)
    assert found[0] == pytest.approx(stats.binom.cdf(k - 1, n, p), abs=1e-12)


def test_the_search_finds_the_failure_of_a_rival_fixed_in_advance() -> None:
    def fixed(rows: NDArray[np.int64]) -> Floats:
        return lower_quantile(rows[:, 0], 30, 0.025) - upper_quantile(rows[:, 1], 30, 0.025)

    def largest(rows: NDArray[np.int64]) -> Floats:
        return lower_quantile(rows[:, 0], 30, 0.025) - upper_quantile(rows[:, 1:].max(axis=1), 30, 0.025)

    smallest, p = worst_case(fixed, 30, 3)
    assert smallest < 0.05
    assert p[2] > p[1]
    assert worst_case(largest, 30, 3)[0] >= 0.95


def check_coverage(n: int, c: int, alpha: float) -> None:
    smallest, p = worst_case(claims_of(pairwise, alpha), n, c)
    assert smallest >= 1 - alpha, p


@pytest.mark.parametrize("alpha", [0.1, 0.05, 0.01, 0.001])
@pytest.mark.parametrize(("n", "c"), [(1, 2), (4, 2), (15, 2), (40, 2), (2, 3), (9, 3), (25, 3), (6, 4), (16, 4)])
def test_exact_coverage(n: int, c: int, alpha: float) -> None:
    check_coverage(n, c, alpha)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.1, 0.05, 0.01, 0.001])
@pytest.mark.parametrize("c", [2, 3, 4])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 17, 20, 23, 26, 30, 35, 40])
def test_exact_coverage_in_full(n: int, c: int, alpha: float) -> None:
    check_coverage(n, c, alpha)


SPREAD = {
    "the true runner-up stands out": np.array([0.9, 0.03, *[0.07 / 8] * 8]),
    "nine equal rivals": np.array([0.97, *[0.03 / 9] * 9]),
    "999 equal rivals": np.array([0.5, *[0.5 / 999] * 999]),
    "999 equal rivals, a rare candidate": np.array([0.01, *[0.99 / 999] * 999]),
}


@pytest.mark.parametrize(
    "p",
    [pytest.param(p, id=name, marks=[pytest.mark.slow] * (name != "nine equal rivals")) for name, p in SPREAD.items()],
)
def test_false_claims_among_many_classes_are_no_more_frequent_than_alpha(p: Floats) -> None:
    """20 000 samples of n = 10 000; a claim grows with N_1, so for each rival count the false ones start at one N_1."""
    n, alpha, samples = 10_000, 0.05, 20_000
    votes = np.random.default_rng(1).multinomial(n, p, size=samples)
    n1, nj = votes[:, 0], votes[:, 1:].max(axis=1)
    true = float(special.ndtri(p[0]) - special.ndtri(p[1:].max()))
    false = 0
    for y in np.unique(nj):
        x = np.sort(n1[nj == y])
        low, high = 0, x.size
        while low < high:
            middle = (low + high) // 2
            exceeds = float(pairwise_margin(x[middle], y, n, alpha)) > true
            low, high = (low, middle) if exceeds else (middle + 1, high)
        false += x.size - low
    assert false <= stats.binom.ppf(1 - 1e-6, samples, alpha)


def test_more_than_a_million_draws_are_bounded_at_once():
    """By Clopper-Pearson bounds, which are hardly smaller there than the bound of the pair at a million."""
    a_million = pairwise_margin(700_000, 250_000, 1_000_000, 0.001)
    rng = np.random.default_rng(0)
    n = (1 << 31) - 1
    nj = rng.integers(n // 100, n // 3, 1_000)
    many = pairwise_margin(n - 2 * nj, nj, n, 0.001)
    assert (many < special.ndtri((n - 2 * nj) / n) - special.ndtri(nj / n)).all()
    just_more = pairwise_margin(700_001, 250_000, 1_000_001, 0.001)
    assert 0.999 * a_million < just_more < a_million


@settings(deadline=None, max_examples=150)
@given(
    n=st.sampled_from([1, 2, 7, 30, 100, 300, 1000]),
    shares=st.tuples(*[st.floats(0, 1)] * 3).filter(lambda s: sum(s) > 0),
    alpha=st.sampled_from([1e-12, 1e-6, 1e-4, 1e-3, 0.05, 0.5, 0.9]),
)
def test_no_margin_is_above_what_takes_microseconds(n: int, shares: tuple[float, ...], alpha: float) -> None:
    n1, nj = (int(n * s / sum(shares)) for s in shares[:2])
    assert pairwise_margin(n1, nj, n, alpha) <= max(float(margin_at_most(n1, nj, n, alpha)), 0.0) * (1 + 1e-9)


@pytest.mark.parametrize("n", [100, 1000, 10_000])
def test_unanimous_votes_prove_no_more_than_they_do(n: int) -> None:
    assert float(margin_at_most(n, 0, n, 1e-3)) == pytest.approx(float(pairwise_margin(n, 0, n, 1e-3)), rel=1e-3)


@pytest.mark.parametrize("n1", [10, 17, 30, 50, 70, 90])
@pytest.mark.parametrize("nj", [1, 5])
def test_what_bounds_a_margin_at_once_is_near_it(n1: int, nj: int) -> None:
    """Of few votes, too: it was 1.3 at 17 against 1, where next to nothing is proved."""
    assert float(margin_at_most(n1, nj, 100, 1e-4)) <= float(pairwise_margin(n1, nj, 100, 1e-4)) + 0.35
    assert float(margin_at_most(100 * n1, nj, 10_000, 1e-4)) <= 1.05 * float(
        pairwise_margin(100 * n1, nj, 10_000, 1e-4)
    )
