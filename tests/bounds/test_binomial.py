"""Clopper-Pearson bounds against 60-digit arithmetic."""

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from smoothcert import ABSTAIN, certify_counts
from smoothcert.bounds import clopper_pearson_lower, clopper_pearson_upper
from smoothcert.bounds.binomial import lower_quantile, may_exceed, upper_quantile
from smoothcert.checks import LEAST_LEVEL
from smoothcert.errors import InputError
from smoothcert.plan import Question
from some import some

CASES = [
    (k, n, alpha)
    for n in (1, 2, 10, 1000, 10**5, 10**7)
    for alpha in (0.1, 1e-3, 1e-12)
    for k in sorted({0, 1, 2, n // 3, n // 2, n - 2, n - 1, n})
    if 0 <= k <= n
]


def exact_tail(k: int, n: int, alpha: float) -> mp.mpf:
    """1 − p for the p with P(Bin(n, p) ≥ k) = α, by Newton steps on the upper tail from SciPy's answer.

    d/dp P(Bin(n, p) ≥ k) = p^(k−1) (1−p)^(n−k) / B(k, n−k+1).
    """
    p, q = (
        mp.mpf(float(bound))
        for bound in (special.betaincinv(k, n - k + 1, alpha), special.betainccinv(n - k + 1, k, alpha))
    )
    q = q if q < p else 1 - p
    for _ in range(4):
        tail = _binomial_tail(k, n, q)
        slope = mp.exp((k - 1) * mp.log1p(-q) + (n - k) * mp.log(q) - mp.log(mp.beta(k, n - k + 1)))
        q += (tail - alpha) / slope
    return q


def _binomial_tail(k: int, n: int, q: mp.mpf) -> mp.mpf:
    """P(Bin(n, 1 − q) ≥ k), by summing terms from the side of the smaller tail until they vanish."""
    log_term = mp.log(mp.binomial(n, k)) + k * mp.log1p(-q) + (n - k) * mp.log(q)
    term, total, i = mp.exp(log_term), mp.mpf(0), k
    odds = (1 - q) / q
    while i <= n and term > total * mp.mpf(10) ** -45:
        total += term
        term *= odds * (n - i) / (i + 1)
        i += 1
    return total


@pytest.mark.parametrize("case", some(CASES))
def test_bounds_and_quantiles_have_twelve_digits(case):
    k, n, alpha = case
    with mp.workdps(60):
        lower, upper = clopper_pearson_lower(k, n, alpha), clopper_pearson_upper(n - k, n, alpha)
        if k == 0:
            assert lower == 0
            assert upper == 1
            assert lower_quantile(k, n, alpha) == -np.inf
            return
        q = exact_tail(k, n, alpha)
        assert abs(lower - (1 - q)) <= 1e-12 * (1 - q)
        assert abs(upper - q) <= 1e-12 * q
        # Φ⁻¹ from the smaller tail, by Newton steps in 60 digits
        z = mp.mpf(float(lower_quantile(k, n, alpha)))
        for _ in range(4):
            z += (mp.ncdf(-z) - q) / mp.npdf(z)
        assert abs(lower_quantile(k, n, alpha) - z) <= max(1e-12 * abs(z), 1e-13)
        assert upper_quantile(n - k, n, alpha) == -lower_quantile(k, n, alpha)


@pytest.mark.parametrize("alpha", [1e-60, 1e-100, LEAST_LEVEL])
def test_the_least_levels_are_kept(alpha):
    rng = np.random.default_rng(0)
    for n in (100, 10_000, 1_000_000):
        for k in {*rng.integers(n // 10, n, 10), *(n - rng.integers(0, 50, 10))}:
            with mp.workdps(60):
                off = _binomial_tail(int(k), n, 1 - mp.mpf(float(clopper_pearson_lower(k, n, alpha)))) / alpha - 1
            assert -1e-8 < off < 1e-11, (k, n)


@pytest.mark.parametrize(("k", "n", "alpha"), [(1337, 10_000, 1e-151), (9963, 10_000, 1e-259), (1, 2, 5e-324)])
def test_levels_that_cannot_be_computed_with_are_refused(k, n, alpha):
    """SciPy's functions vanish there, and bounds came out above 1, or far above the truth."""
    with pytest.raises(InputError, match="cannot be computed with"):
        clopper_pearson_lower(k, n, alpha)
    with pytest.raises(InputError, match="alpha"):
        Question(alpha=alpha)


def test_ends():
    np.testing.assert_allclose(clopper_pearson_lower(100, 100, 0.001), 0.001 ** (1 / 100), rtol=1e-13)
    np.testing.assert_allclose(clopper_pearson_upper(0, 100, 0.001), 1 - 0.001 ** (1 / 100), rtol=1e-13)
    assert clopper_pearson_upper(100, 100, 0.001) == 1


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, float("nan"), "much"])
def test_alpha_out_of_range(alpha):
    with pytest.raises(InputError, match="alpha"):
        clopper_pearson_lower(1, 2, alpha)


@pytest.mark.parametrize(("k", "n"), [(-1, 10), (11, 10), (0, 0), (1.5, 10), (float("nan"), 10)])
def test_counts_out_of_range(k, n):
    with pytest.raises(InputError, match="whole numbers"):
        clopper_pearson_lower(k, n, 0.01)


@pytest.mark.parametrize("alpha", [1e-95, 1e-100])
def test_a_tiny_level_proves_nothing_from_few_draws(alpha):
    for n in (1, 2, 3, 10):
        assert clopper_pearson_lower(n, n, alpha) <= alpha ** (1 / n) * (1 + 1e-9)
        assert clopper_pearson_upper(0, n, alpha) >= 1 - 1e-9
        assert lower_quantile(n, n, alpha) < 0 < upper_quantile(0, n, alpha)
    for method in ("mono", "union", "pairwise", "cpm", "bonferroni"):
        certificate = certify_counts([9, 1, 0], [3, 0, 0], sigma=1.0, alpha=alpha, method=method)
        assert (certificate.prediction, certificate.radius) == (ABSTAIN, 0.0)


def test_bounds_near_one_are_rounded_outward():
    """The bound is `(1 − α)^(1/n)`, which is above 1 − 2⁻⁵³."""
    assert clopper_pearson_upper(9999, 10000, 1e-12) == 1.0


@pytest.mark.parametrize("n", [1, 10, 1000, 2**31 - 1])
@pytest.mark.parametrize("alpha", [1e-12, 1e-3, 0.4])
def test_what_a_count_may_exceed_is_its_quantile(n, alpha):
    counts = np.unique(np.linspace(n / 2, n, 20).astype(int))
    for k, z in zip(counts, lower_quantile(counts, n, alpha), strict=True):
        if z > 0:
            assert may_exceed(k, n, z, alpha)
            assert not may_exceed(k, n, z * (1 + 1e-4) + 1e-6, alpha)
    assert not may_exceed(0, n, 0.0, alpha)
    assert not may_exceed(n, n, 1e62, alpha)
