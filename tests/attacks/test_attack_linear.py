"""Attacks on linear classifiers, where the distance to every other class is known in closed form."""

import numpy as np
import pytest
import torch

from smoothcert import ABSTAIN, Duels, Labels, SmoothedClassifier, Softmax, Sparsemax, attacks

SIZE = 12


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def linear(classes, rng):
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(SIZE, classes))
    with torch.no_grad():
        module[1].weight.copy_(torch.from_numpy(rng.normal(size=(classes, SIZE))))
        module[1].bias.copy_(torch.from_numpy(rng.normal(size=classes)))
    return module


def distances(module, xs):
    """The class of each x, and the distance from it to the nearest point of any other: margin / ‖w_y − w_j‖."""
    weight, bias = (p.detach().numpy().astype(np.float64) for p in module[1].parameters())
    scores = xs.reshape(len(xs), -1) @ weight.T + bias
    labels = scores.argmax(axis=1)
    margins = scores[np.arange(len(xs)), labels, None] - scores
    slopes = np.linalg.norm(weight[labels][:, None] - weight, axis=2)
    ratios = np.divide(margins, slopes, out=np.full_like(margins, np.inf), where=slopes > 0)
    return labels, ratios.min(axis=1)


def test_between_two_classes_the_distance_is_found(rng):
    module, xs = linear(2, rng), rng.normal(size=(20, 3, 4)).astype(np.float32)
    labels, exact = distances(module, xs)
    eps = [0.25, 0.5, 1.0, 2.0]
    attack = attacks.pgd(module, xs, labels, eps)
    near = exact < 1.95
    np.testing.assert_allclose(attack.norms[near], exact[near], rtol=0.01)
    assert (attack.norms >= exact * (1 - 1e-5)).all()
    assert near.sum() >= 15
    decided = abs(exact[:, None] / eps - 1) > 0.01
    assert (attack.success == (exact[:, None] < eps))[decided].all()


def test_a_data_set_is_attacked_in_parts(rng, tmp_path):
    """More inputs than one part has, and only those that are asked for; each is attacked as it would be alone."""
    module, xs = linear(2, rng), rng.normal(size=(140, 3, 2, 2)).astype(np.float32)
    labels, exact = distances(module, xs)
    np.savez(tmp_path / "data.npz", x=xs, y=labels)
    told = []
    found = attacks.attack_dataset(
        module, tmp_path / "data.npz", [1.0, 2.0], skip=2, limit=60, steps=20, on_progress=lambda *now: told.append(now)
    )
    chosen = slice(0, 120, 2)
    assert found.ids == [str(row) for row in range(140)[chosen]]
    assert found.labels == labels[chosen].tolist()
    whole = attacks.pgd(module, xs[chosen], labels[chosen], [1.0, 2.0], steps=20)
    np.testing.assert_allclose(found.norms, whole.norms, rtol=1e-3)
    assert (found.norms >= exact[chosen] * (1 - 1e-5)).all()
    assert told == [(50 * 2 * 20, 50 / 60), (60 * 2 * 20, 1.0)]
    assert (found.settings["steps"], found.settings["step"], found.settings["eps"]) == (20, 0.2, [1.0, 2.0])


def test_among_many_classes_nothing_is_found_below_the_distance(rng):
    module, xs = linear(7, rng), rng.normal(size=(20, SIZE)).astype(np.float32)
    labels, exact = distances(module, xs)
    attack = attacks.pgd(module, xs, labels, np.geomspace(0.02, 4, 12))
    assert (attack.norms >= exact * (1 - 1e-5)).all()
    assert np.median(attack.norms / exact) < 1.05


def test_confident_scores_do_not_hide_the_gradient(rng):
    """At margins of 60 the gradient of the cross entropy is about 1e-26: its square is 0 in float32."""
    module, xs = linear(2, rng), rng.normal(size=(10, SIZE)).astype(np.float32)
    labels, exact = distances(module, xs)
    with torch.no_grad():
        margins = module(torch.from_numpy(xs)).diff(dim=1).abs()
        for parameter in module.parameters():
            parameter.mul_(60 / margins.max())
    eps = 1.01 * exact.max()
    np.testing.assert_allclose(attacks.pgd(module, xs, labels, eps).norms, exact, rtol=0.01, atol=eps / 2**10)


def test_smoothing_keeps_the_boundary_of_a_linear_classifier(rng):
    """Nearer than that nothing is found but the width of an abstention, 0.04 σ for 10 000 draws."""
    module = linear(2, rng)
    xs = rng.normal(size=(2, SIZE)).astype(np.float32)
    labels, exact = distances(module, xs)
    smoothed = SmoothedClassifier(module, sigma=0.1 * exact.min(), num_classes=2, seed=0)
    attack = attacks.smoothed_pgd(smoothed, xs, labels, 1.1 * exact.max(), n=10_000)
    np.testing.assert_allclose(attack.norms, exact, rtol=0.01)


def test_an_input_of_another_class_needs_no_perturbation(rng):
    module, xs = linear(2, rng), rng.normal(size=(4, SIZE)).astype(np.float32)
    labels, _ = distances(module, xs)
    attack = attacks.pgd(module, xs, 1 - labels, 0.5)
    assert attack.norms.tolist() == [0] * 4
    assert not attack.deltas.any()
    assert attack.robust_accuracy == [0.0]


def test_nothing_found_is_infinitely_far(rng):
    module, xs = linear(2, rng), rng.normal(size=(4, SIZE)).astype(np.float32)
    labels, exact = distances(module, xs)
    attack = attacks.pgd(module, xs, labels, 0.9 * exact.min())
    assert np.isinf(attack.norms).all()
    assert attack.robust_accuracy == [1.0]


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_perturbations_lie_in_their_balls(rng, scale):
    """Also where the input is so large that float32 rounds x + δ coarsely: measured in float64, as it was judged."""
    module, xs = linear(3, rng), (scale * rng.normal(size=(30, SIZE))).astype(np.float32)
    labels, exact = distances(module, xs)
    for eps in np.quantile(exact, [0.3, 0.8]):
        attack = attacks.pgd(module, xs, labels, eps, step=None)
        found = np.isfinite(attack.norms)
        assert found.any()
        np.testing.assert_array_equal(attack.norms[found], np.linalg.norm(attack.deltas[found], axis=1))
        assert (attack.norms[found] <= attack.eps).all()
        judged = (xs + attack.deltas).astype(np.float32)
        with torch.no_grad():
            fooled = module(torch.from_numpy(judged)).argmax(1).numpy() != labels
        assert (fooled == found).all()


@pytest.mark.parametrize("votes", [Duels(), Labels(), Softmax(0.5), Sparsemax(4.0)], ids=str)
def test_a_radius_that_is_true_holds_and_its_triple_is_broken(rng, votes):
    """The certificate of a half-space nearly attains the distance; that of shares too, whose two classes change places
    where those of the scores do, by symmetry."""
    module, xs = linear(2, rng), rng.normal(size=(6, SIZE)).astype(np.float32)
    labels, exact = distances(module, xs)
    xs, labels, exact = xs[exact > 0.1], labels[exact > 0.1], exact[exact > 0.1]
    smoothed = SmoothedClassifier(module, sigma=float(np.median(exact)), num_classes=2, votes=votes, seed=0)
    certificates = smoothed.certify_batch(list(xs), n=5_000)
    kept = [i for i, c in enumerate(certificates) if not c.abstained and c.radius > 0.6 * exact[i]]
    assert len(kept) >= 3
    radii = np.array([certificates[i].radius for i in kept])
    search = attacks.search_balls(smoothed, xs[kept], labels[kept], radii)
    assert (search.searched, search.violations) == (len(kept), [])
    assert search.false_alarms == pytest.approx(0.001 * len(kept))
    broken = attacks.search_balls(smoothed, xs[kept], labels[kept], 3 * radii)
    assert len(broken.violations) == len(kept)
    for violation, i, radius in zip(broken.violations, kept, 3 * radii, strict=True):
        assert violation.found not in (labels[i], ABSTAIN)
        assert violation.norm == pytest.approx(np.linalg.norm(violation.delta), rel=1e-14)
        assert exact[i] < violation.norm < violation.radius == radius
        again = SmoothedClassifier(module, sigma=smoothed.sigma, num_classes=2, votes=votes, seed=1)
        assert again.predict(xs[i] + violation.delta) == violation.found
