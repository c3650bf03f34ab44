"""Grid noise: integers from the exactly rounded Gaussian, and what they prove."""

import pickle
from itertools import pairwise

import mpmath
import numpy as np
import pytest
import torch
from scipy import special, stats

from smoothcert import InputError, SmoothedClassifier, certify_counts, open_run
from smoothcert.data import as_dataset
from smoothcert.sampling.blocks import Phase, noise_key
from smoothcert.sampling.noise import Gaussian, Grid, Piece, grid, open_noise
from smoothcert.sampling.noise.grid import FURTHEST, MOST
from smoothcert.sampling.noise.philox import philox
from smoothcert.sampling.noise.thresholds import OPEN, table, threshold, thresholds

SIGMAS = (0.12, 0.25, 0.5, 1.0, 2.0)
GRIDS = [(sigma, 255) for sigma in SIGMAS] + [(0.25, 16), (0.5, 1), (0.1, 7)]


def keys(blocks):
    return [noise_key(0, str(b % 7), Phase.ESTIMATION, b) for b in range(blocks)]


def draws(noise, blocks, size):
    """The whole numbers that are drawn for many blocks."""
    out, zero = np.empty((blocks, size), dtype=np.float32), noise.centre(np.zeros(size, dtype=np.float32))
    noise.draw([Piece(key, 0, 1, zero) for key in keys(blocks)], out)
    return np.rint(out * noise.levels)


def below(k, sigma, levels):
    """P(rounded Gaussian < k), to 50 digits."""
    with mpmath.workdps(50):
        return mpmath.ncdf((mpmath.mpf(k) - mpmath.mpf("0.5")) / (mpmath.mpf(sigma) * levels))


class TestThresholds:
    @pytest.mark.parametrize(("sigma", "levels"), GRIDS)
    def test_they_are_the_nearest_integers_to_the_distribution_function(self, sigma, levels):
        values = thresholds(sigma, levels)
        reach = len(values) // 2
        with mpmath.workdps(50):
            for k in {1 - reach, reach, *range(1 - reach, reach + 1, max(1, reach // 100))}:
                exact = 2**64 * below(k, sigma, levels)
                assert abs(int(values[k + reach - 1]) - exact) < mpmath.mpf("0.5000000001"), k
            assert 2**64 * below(-reach, sigma, levels) < mpmath.mpf("0.5000000001")

    @pytest.mark.parametrize(("sigma", "levels"), [(0.12, 255), (0.25, 16), (0.5, 1)])
    def test_the_stated_error_covers_the_total_variation_distance(self, sigma, levels):
        values = [0, *(int(t) for t in thresholds(sigma, levels)), 2**64]
        reach = len(values) // 2 - 1
        with mpmath.workdps(50):
            at = [mpmath.mpf(0), *(below(k, sigma, levels) for k in range(-reach, reach + 2)), mpmath.mpf(1)]
            exact = [b - a for a, b in pairwise(at)]  # the tails are the first and the last
            drawn = [0, *(mpmath.mpf(b - a) / 2**64 for a, b in pairwise(values)), 0]
            distance = mpmath.fsum(abs(p - q) for p, q in zip(exact, drawn, strict=True)) / 2
        error = Grid(sigma, levels).error(1)
        assert 0 < distance <= error
        assert error == pytest.approx((len(values) - 1) * 2.0**-64)

    def test_the_error_grows_with_the_number_of_values(self):
        """Section 5 of the theory: CIFAR-10 with 100 000 draws."""
        errors = [Grid(sigma, 255).error(3072 * 100_000) for sigma in (0.12, 0.25, 0.5, 1.0)]
        np.testing.assert_allclose(errors, [0.93e-8, 1.95e-8, 3.89e-8, 7.78e-8], rtol=0.01)


def check_distribution(noise, blocks, size):
    """Chi-square against the exact probabilities; bins with few expected draws are pooled into the tails."""
    steps, total = noise.sigma * noise.levels, blocks * size
    last = 1 + int(steps * stats.norm.isf(20 / total))
    lower = stats.norm.cdf((np.arange(-last, 1) + 0.5) / steps)  # P(k ≤ −last), …, P(k ≤ 0)
    tail = np.diff(lower)  # P(k) for k = 1 − last … 0
    probabilities = np.concatenate([lower[:1], tail, tail[-2::-1], lower[:1]])
    counts = np.zeros(2 * last + 1, dtype=np.int64)
    for row in draws(noise, blocks, size):
        counts += np.bincount(row.astype(np.int64).clip(-last, last) + last, minlength=len(counts))
    assert stats.chisquare(counts, total * probabilities).pvalue > 1e-4


class TestDistribution:
    @pytest.mark.parametrize("sigma", SIGMAS)
    def test_the_draws_are_rounded_gaussians(self, sigma):
        check_distribution(Grid(sigma, 255), blocks=64, size=2**15)

    def test_the_draws_on_a_coarse_grid_are_rounded_gaussians(self):
        check_distribution(Grid(0.1, 7), blocks=64, size=2**15)

    @pytest.mark.slow
    @pytest.mark.parametrize("sigma", SIGMAS)
    def test_a_hundred_million_draws_are_rounded_gaussians(self, sigma):
        check_distribution(Grid(sigma, 255), blocks=1024, size=100_000)

    def test_blocks_are_independent(self):
        """Signs and sizes of draws at equal positions of different blocks, and of neighbours in a block."""
        values = draws(Grid(0.5, 255), blocks=60, size=4000).astype(np.float64)
        for quantity in (values, np.abs(values)):
            correlation = np.corrcoef(quantity) - np.eye(60)
            assert np.abs(correlation).max() < 6 / 4000**0.5
        quarters = np.searchsorted(np.quantile(values, [0.25, 0.5, 0.75]), values)
        for a, b in ((quarters[:-1], quarters[1:]), (quarters[:, :-1], quarters[:, 1:])):
            table = np.histogram2d(a.ravel(), b.ravel(), bins=4)[0]
            assert stats.chi2_contingency(table).pvalue > 1e-4


def test_sixteen_bits_settle_what_the_others_cannot_change():
    for sigma, levels in (*GRIDS, (16.0, 255)):
        settled, lowest, edges = table(sigma, levels)
        first = np.arange(2**16, dtype=np.uint64) << np.uint64(48)
        low, high = (np.searchsorted(edges, u, side="right") for u in (first, first + np.uint64(2**48 - 1)))
        np.testing.assert_array_equal(settled, np.where(low == high, low - len(edges) // 2, OPEN))
        np.testing.assert_array_equal(lowest, low)


def test_the_classifier_gets_the_floats_that_the_readers_make():
    noise = Grid(0.5, 255)
    x = (np.arange(256) / 255).astype(np.float32)
    out = np.empty((100, 256), dtype=np.float32)
    noise.draw([Piece(keys(1)[0], 0, 100, noise.centre(x))], out)
    made = np.arange(-5000, 5000).astype(np.float32) / np.float32(255)
    assert np.isin(out, made).all()
    around_zero = np.empty_like(out)
    noise.draw([Piece(keys(1)[0], 0, 100, noise.centre(np.zeros_like(x)))], around_zero)
    np.testing.assert_array_equal(np.rint(out * 255), np.arange(256) + np.rint(around_zero * 255))


def test_every_value_of_an_8_bit_image_is_on_the_grid():
    pixels = np.arange(256)
    for image in (pixels.astype(np.float32) / 255, (pixels / 255).astype(np.float32), torch.arange(256) / 255):
        Grid(0.5, 255).check(np.asarray(image, dtype=np.float32), "x")
    with pytest.raises(InputError, match="no multiples of 1/255"):
        Grid(0.5, 255).check(np.nextafter(np.float32(1 / 3), np.float32(1))[None], "x")


def test_values_too_large_for_float32_to_tell_the_grid_apart_are_refused():
    """Near 10⁶ the float of a multiple of 1/255 stands for several others, too, up to 3 steps away."""
    large = np.rint(np.float32(1e6) * np.float32(255)) / np.float32(255)
    for x in (large, -large, np.float32(3e38)):
        with pytest.raises(InputError, match="where float32 does not tell the multiples of 1/255 apart"):
            Grid(0.01, 255).check(np.array([0.0, x], dtype=np.float32), "0")
    Grid(0.01, 255).check(np.array([16000.0, -16000.0], dtype=np.float32), "0")


@pytest.mark.parametrize("act", [lambda c, x: c.predict(x), lambda c, x: c.count(x, 100)], ids=["predict", "count"])
def test_predictions_too_are_refused_where_float32_does_not_tell_the_grid_apart(act):
    smoothed = SmoothedClassifier(lambda batch: batch[:, :2], sigma=0.01, num_classes=2, noise="grid", seed=0)
    with pytest.raises(InputError, match="where float32 does not tell the multiples of 1/255 apart"):
        act(smoothed, np.array([1e6, 0.1], dtype=np.float32))


@pytest.mark.parametrize("levels", [1, 3, 255, 256, 1000, 65535, 2**24 - 1])
def test_integers_below_the_limit_keep_their_floats_apart(levels):
    integers = np.concatenate([np.arange(2**22 - 10_000, 2**22), np.arange(10_000)]).astype(np.float32)
    floats = integers / np.float32(levels)
    assert np.array_equal(np.rint(floats * np.float32(levels)), integers)


def test_no_draw_is_further_than_the_limit_allows_for():
    assert len(thresholds(MOST, 1)) // 2 < 2**22 - FURTHEST


@pytest.mark.parametrize("noise", [Gaussian(0.5), Grid(0.5, 16)])
def test_noise_can_be_sent_to_another_process(noise):
    copy = pickle.loads(pickle.dumps(noise))
    assert copy == noise
    assert copy == open_noise(noise.name, noise.sigma, noise.levels)


@pytest.mark.parametrize(
    ("sigma", "levels", "message"), [(0.001, 255, "takes 0.5 to 4096"), (100.0, 255, "takes 0.5"), (0.5, 0, "levels")]
)
def test_a_grid_far_from_the_noise_is_refused(sigma, levels, message):
    with pytest.raises(InputError, match=message):
        open_noise("grid", sigma, levels)


def low_bits(batch):
    """Is there, in a coordinate of size under ½, a bit below 2⁻²⁵? Around 0 floats have such bits, around ½ not."""
    scaled = batch.astype(np.float64) * 2**25
    return ((np.abs(batch) < 0.5) & (scaled != np.rint(scaled))).any(axis=1).astype(int)


class TestTheFloatingPointAttack:
    """100 coordinates, σ = 2: from 0 to ½ in all of them is a distance of 5."""

    def test_gaussian_noise_proves_what_is_false(self):
        smoothed = SmoothedClassifier(low_bits, sigma=2.0, num_classes=2, noise="gaussian", seed=0)
        certificate = smoothed.certify(np.zeros(100))
        assert certificate.prediction == 1
        assert certificate.certified_at(5.4)
        assert smoothed.predict(np.full(100, 0.5)) == 0

    @pytest.mark.parametrize("levels", [255, 256])
    def test_grid_noise_proves_what_is_true(self, levels):
        smoothed = SmoothedClassifier(low_bits, sigma=2.0, num_classes=2, noise="grid", levels=levels, seed=0)
        certificate = smoothed.certify(np.zeros(100))
        assert certificate.certified_at(5.4)
        rng = np.random.default_rng(0)
        for direction in (np.ones(100), *rng.normal(size=(3, 100))):
            delta = 5 * direction / np.linalg.norm(direction)
            assert smoothed.predict(delta) == certificate.prediction


def above_half(batch):
    return (batch[:, 0] > 0.5).astype(int)


@pytest.mark.parametrize("x", [0.3, 0.31, 0.3499, 0.36, 0.5])
def test_off_the_grid_the_sum_of_input_and_noise_is_rounded(x):
    smoothed = SmoothedClassifier(above_half, sigma=0.2, num_classes=2, noise="grid", levels=10, seed=0)
    p = stats.norm.sf((5.5 - 10 * x) / 2)
    count = smoothed.count(np.array([x]), 20_000)[1]
    assert stats.binomtest(int(count), 20_000, p).pvalue > 1e-4


SHIFTS = np.array([0.0, 1e-30, 0.31, 0.4999, 0.5, -0.123, 0.77], dtype=np.float32)


class TestOffTheGrid:
    @pytest.mark.parametrize(("sigma", "levels"), [(0.12, 255), (2.0, 255), (0.25, 16), (0.5, 1)])
    def test_a_draw_is_the_number_of_thresholds_at_most_its_word(self, sigma, levels):
        """Against the distribution function of round(x + noise) to 50 digits."""
        x, rows = SHIFTS / levels, np.empty((60, len(SHIFTS)), dtype=np.float32)
        noise = Grid(sigma, levels)
        noise.draw([Piece(keys(1)[0], 0, 60, noise.centre(x))], rows)
        words = philox(keys(1)[0]).bit_generator.random_raw(rows.size).reshape(rows.shape)
        near = np.rint(x * np.float32(levels)).astype(int)
        rows = np.rint(rows * levels) - near
        with mpmath.workdps(50):
            steps = mpmath.mpf(sigma) * levels
            for (_, j), word, k in zip(np.ndindex(rows.shape), words.flat, rows.flat, strict=True):
                lower, upper = (
                    mpmath.ncdf((near[j] + int(k) + half - mpmath.mpf(float(x[j])) * levels) / steps)
                    for half in (mpmath.mpf("-0.5"), mpmath.mpf("0.5"))
                )
                assert mpmath.nint(2**64 * lower) <= int(word) < mpmath.nint(2**64 * upper)

    def test_the_quick_way_decides_as_the_thresholds_do(self, monkeypatch):
        x, noise, found = SHIFTS / 16, Grid(0.25, 16), []
        for undecided in (grid.UNDECIDED, 0.5):
            monkeypatch.setattr(grid, "UNDECIDED", undecided)
            found.append(np.empty((200, len(x)), dtype=np.float32))
            noise.draw([Piece(keys(1)[0], 0, 200, noise.centre(x))], found[-1])
        np.testing.assert_array_equal(*found)

    def test_float64_is_far_more_exact_than_it_has_to_be(self):
        """At σ = 4096 steps, the most there are, s Φ⁻¹ errs by less than a thousandth of what is left undecided."""
        tails = np.concatenate([10 ** np.random.default_rng(0).uniform(-19.5, np.log10(0.5), 300), [2.0**-65, 0.5]])
        with mpmath.workdps(50):
            for p in tails:
                exact = -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(float(p)))
                assert abs(mpmath.mpf(float(special.ndtri(p))) - exact) * 4096 < grid.UNDECIDED / 1000

    @pytest.mark.parametrize("shift", [0.3, -0.45])
    def test_no_more_bins_than_the_error_counts(self, shift):
        """One threshold more than on the grid, at most, is among the 64-bit integers."""
        for sigma, levels in GRIDS:
            on_grid, reach = len(thresholds(sigma, levels)), len(thresholds(sigma, levels)) // 2 + 3
            off = [threshold(k - 0.5, shift, sigma, levels) for k in range(-reach, reach + 1)]
            assert sum(0 < t < 2**64 for t in off) <= on_grid + 1


class TestTheLevel:
    def smoothed(self, **options):
        return SmoothedClassifier(above_half, sigma=0.2, num_classes=2, noise="grid", levels=10, **options, seed=0)

    def test_the_error_is_taken_off_alpha(self):
        x, error = np.zeros((3, 4)), Grid(0.2, 10).error(12 * 500)
        certificate = SmoothedClassifier(
            lambda b: above_half(b[:, 0]), sigma=0.2, num_classes=2, noise="grid", levels=10, seed=0
        ).certify(x, n=500, alpha=1.5 * error, method="mono")
        assert certificate.noise_error == error
        assert certificate.alpha == 1.5 * error
        assert certificate.level == pytest.approx(0.5 * error)
        assert certificate.level < certificate.alpha - certificate.noise_error
        ceiling = certify_counts([100, 0], [500, 0], sigma=0.2, alpha=0.5 * error, method="mono").radius
        assert certificate.radius <= ceiling * (1 + 1e-12)
        assert certificate.radius > 0

    def test_an_alpha_below_the_error_is_refused_before_anything_is_drawn(self):
        def never(batch):
            raise AssertionError

        smoothed = SmoothedClassifier(never, sigma=0.2, num_classes=2, noise="grid", levels=10, batch=10, seed=0)
        for answer in (smoothed.certify, smoothed.predict):
            with pytest.raises(InputError, match="alpha = 1e-17 is not above"):
                answer(np.zeros(1), alpha=1e-17)
        with pytest.raises(InputError, match="alpha = 1e-15 is not above"):
            smoothed.certify(np.zeros(1), radii=[0.1], max_n=100_000, alpha=1e-15)

    def test_an_input_off_the_grid_is_not_certified(self):
        with pytest.raises(InputError, match="no multiples of 1/10"):
            self.smoothed().certify(np.array([0.25]))

    def test_gaussian_noise_costs_no_alpha(self):
        certificate = SmoothedClassifier(above_half, sigma=0.2, num_classes=2, seed=0).certify(np.zeros(1), n=100)
        assert (certificate.noise, certificate.noise_error, certificate.level) == ("gaussian", 0.0, 0.001)


class TestRuns:
    @pytest.fixture
    def data(self, tmp_path):
        pixels = np.random.default_rng(0).integers(0, 256, size=(4, 6, 6), dtype=np.uint8)
        np.savez(tmp_path / "data.npz", x=pixels, y=[0, 1, 1, 0])
        return as_dataset(tmp_path / "data.npz")

    def run(self, data, path, levels=None, **options):
        smoothed = SmoothedClassifier(
            lambda b: (b.mean(axis=(1, 2, 3)) > 0.5).astype(int),
            sigma=0.25,
            num_classes=2,
            noise="grid",
            levels=levels,
            batch=50,
            seed=0,
        )
        return smoothed.certify_dataset(data, out=path, **options)

    def test_a_run_keeps_its_grid_and_its_error(self, data, tmp_path):
        run = self.run(data, tmp_path / "r", n=200)
        error = Grid(0.25, 255).error(200 * 36)
        assert (run.plan.classifier.noise, run.plan.classifier.levels, run.plan.noise_error) == ("grid", 255, error)
        assert {(c.noise, c.noise_error) for c in run.certificates()} == {("grid", error)}
        with pytest.raises(InputError, match="is not above"):
            open_run(tmp_path / "r").certificates(alpha=error)

    def test_an_adaptive_run_pays_for_all_the_draws_it_might_make(self, data, tmp_path):
        run = self.run(data, tmp_path / "r", radii=[0.1], max_n=1000)
        assert run.plan.noise_error == Grid(0.25, 255).error(1000 * 36)
        assert run.plan.level <= 0.001 - run.plan.noise_error < 0.001
        assert {(c.alpha, c.noise_error) for c in run.certificates()} == {(0.001, run.plan.noise_error)}

    def test_another_grid_is_another_run(self, data, tmp_path):
        self.run(data, tmp_path / "r", limit=1, n=200)
        with pytest.raises(InputError, match="levels = 255, not 510"):
            self.run(data, tmp_path / "r", limit=1, n=200, levels=510)

    def test_data_off_the_grid_are_refused_and_leave_no_file(self, data, tmp_path):
        with pytest.raises(InputError, match="input 0 has values that are no multiples of 1/100"):
            self.run(data, tmp_path / "r", n=200, levels=100)
        assert not (tmp_path / "r").exists()
