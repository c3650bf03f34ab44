"""SmoothedClassifier on classifiers whose smoothing is known in closed form."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats

from smoothcert import ABSTAIN, InputError, Labels, SmoothedClassifier
from smoothcert.attacks.targets import check_targets
from smoothcert.classifier import as_input
from smoothcert.compat.cohen import Smooth

W = np.random.default_rng(0).normal(size=12).astype(np.float32)
W /= np.linalg.norm(W)


def half_space(batch):
    """Class 1 where ⟨w, x⟩ > 0, |w| = 1: around x the smoothed p is Φ(⟨w, x⟩/σ) and the radius |⟨w, x⟩|."""
    return (batch.reshape(len(batch), -1) @ W > 0).astype(np.int64)


def at_distance(d):
    return (d * W).reshape(3, 4)


@pytest.mark.parametrize("distance", [0.1, 0.3, 0.8])
def test_the_radius_is_below_the_true_distance_and_near_it(distance):
    smoothed = SmoothedClassifier(half_space, sigma=0.5, num_classes=2, seed=0)
    for method in ("mono", "cpm"):
        certificate = smoothed.certify(at_distance(distance), n=50_000, method=method)
        assert certificate.prediction == 1
        assert distance - 0.03 < certificate.radius <= distance
        assert (certificate.n0, certificate.n, certificate.alpha) == (100, 50_000, 0.001)
        assert (certificate.noise, certificate.basis) == ("gaussian", "proved")


def test_votes_follow_the_known_probability():
    counts = SmoothedClassifier(half_space, sigma=0.5, num_classes=2, seed=0).count(at_distance(0.3), 100_000)
    assert stats.binomtest(int(counts[1]), 100_000, stats.norm.cdf(0.6)).pvalue > 1e-4


def test_predict():
    smoothed = SmoothedClassifier(half_space, sigma=0.5, num_classes=2, seed=0)
    assert smoothed.predict(at_distance(0.5)) == 1
    assert smoothed.predict(at_distance(-0.5)) == 0
    assert smoothed.predict(at_distance(0.0)) == ABSTAIN
    assert smoothed.predict_batch([at_distance(0.5), at_distance(-0.5)]) == [1, 0]
    assert smoothed.predict_batch([]) == smoothed.certify_batch([]) == []


def test_answers_depend_on_seed_and_input_alone():
    xs = [at_distance(d) for d in (0.1, 0.2, 0.3)]
    one = SmoothedClassifier(half_space, sigma=0.5, num_classes=2, batch=50, seed=0)
    other = SmoothedClassifier(half_space, sigma=0.5, num_classes=2, batch=333, seed=0)
    together = one.certify_batch(xs, n=1000)
    assert together == [other.certify(x, n=1000) for x in reversed(xs)][::-1]
    reseeded = SmoothedClassifier(half_space, sigma=0.5, num_classes=2, batch=50, seed=1)
    assert reseeded.certify_batch(xs, n=1000) != together


def test_counting_again_draws_new_noise():
    """Selection and estimation counted by hand must not share draws: a shared draw voids the certificate."""
    draws = []

    def model(batch):
        draws.append(batch[:150].copy())
        return half_space(batch)

    smoothed = SmoothedClassifier(model, sigma=0.5, num_classes=2, batch=200, seed=0)
    for _ in range(2):
        assert smoothed.count(at_distance(0.1), 150).sum() == 150
    assert not np.isin(draws[-2], draws[-1]).any()


def test_a_model_on_tensors_keeps_its_device_and_state():
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2, bias=False), torch.nn.Dropout(0.5)).train()
    with torch.no_grad():
        module[1].weight.copy_(torch.stack([torch.zeros(12), torch.from_numpy(W)]))
    smoothed = SmoothedClassifier(module, sigma=0.5, num_classes=2, seed=0, votes=Labels())
    certificate = smoothed.certify(torch.from_numpy(at_distance(0.8)), n=5000)
    by_callable = SmoothedClassifier(half_space, sigma=0.5, num_classes=2, seed=0).certify(at_distance(0.8), n=5000)
    assert replace(certificate, engine=None) == replace(by_callable, engine=None)
    assert module.training
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("options", "call", "message"),
    [
        ({"sigma": 0}, {}, "sigma must be"),
        ({"num_classes": 1}, {}, "num_classes must be a whole number of at least 2"),
        ({"noise": "uniform"}, {}, "unknown noise 'uniform'"),
        ({"batch": 0}, {}, "batch must be"),
        ({"batch": "huge"}, {}, "batch must be"),
        ({"engine": "steam"}, {}, "unknown engine 'steam'"),
        ({}, {"n0": 0}, "n0 must be a whole number of at least 1"),
        ({}, {"n": 0}, "n must be a whole number of at least 1"),
        ({}, {"n": 10.5}, "n must be a whole number"),
        ({}, {"alpha": 1}, "alpha must lie"),
        ({}, {"method": "magic"}, "unknown method 'magic'"),
        ({}, {"x": [[np.nan] * 4] * 3}, "NaN or infinite"),
        ({}, {"x": "cat.png"}, "must be an array or a tensor of numbers"),
        ({}, {"x": np.array([])}, "empty"),
        ({}, {"x": np.arange(12).reshape(3, 4)}, "an input is int64: make it uint8"),
        ({}, {"x": Image.new("I;16", (4, 3))}, "an input is an image of mode I;16"),
    ],
)
def test_bad_arguments(options, call, message):
    with pytest.raises(InputError, match=message):
        SmoothedClassifier(half_space, **{"sigma": 0.5, "num_classes": 2, **options}, seed=0).certify(
            call.pop("x", at_distance(0.1)), **call
        )


@pytest.mark.parametrize("mode", ["RGB", "P", "RGBA"])
def test_pixels_follow_one_rule_wherever_they_come_in(tmp_path, mode):
    """uint8 arrays, tensors and Pillow images are value / 255 with channels first, as in a data set."""
    pixels = np.random.default_rng(0).integers(0, 2, (6, 5, 3), dtype=np.uint8) * 255
    image = Image.fromarray(pixels).convert(mode)
    array = pixels.transpose(2, 0, 1).astype(np.float32) / 255
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(90, 3))
    smoothed = SmoothedClassifier(module, sigma=0.25, num_classes=3, seed=0)
    expected = smoothed.certify(array, n=200)
    for x in (pixels, torch.from_numpy(pixels), torch.from_numpy(pixels).permute(2, 0, 1), image):
        assert smoothed.certify(x, n=200) == expected
        assert smoothed.predict(x) == smoothed.predict(array)
        np.testing.assert_array_equal(check_targets(module, [x], [0], (0, 1)).x[0], array)
        fresh, again = (SmoothedClassifier(module, sigma=0.25, num_classes=3, seed=0) for _ in range(2))
        np.testing.assert_array_equal(fresh.count(x, 200), again.count(array, 200))
    runs = [
        smoothed.certify_dataset([(x, 1)], out=tmp_path / f"{k}.smoothcert", n=200)
        for k, x in enumerate((array, pixels, image))
    ]
    assert len({run.inputs[0].digest for run in runs}) == 1


def test_a_grey_image_has_one_channel():
    image = Image.fromarray(np.full((3, 4), 51, np.uint8))
    np.testing.assert_array_equal(as_input(image).array, np.full((1, 3, 4), np.float32(0.2)))


def test_a_script_for_locuslab_smoothing_runs_with_its_import_changed():
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2, bias=False))
    with torch.no_grad():
        module[1].weight.copy_(torch.stack([torch.zeros(12), torch.from_numpy(W)]))
    smooth = Smooth(module, 2, 0.5)
    x = torch.from_numpy(at_distance(0.4))
    prediction, radius = smooth.certify(x, 100, 10_000, 0.001, 1000)
    assert prediction == 1
    assert 0.36 < radius <= 0.4
    assert smooth.certify(0 * x, 100, 1000, 0.001, batch_size=400) == (Smooth.ABSTAIN, 0.0)
    assert smooth.predict(x, 1000, 0.001, 400) == 1
    assert smooth.predict(0 * x, 1000, 0.001, batch_size=400) == Smooth.ABSTAIN == -1
