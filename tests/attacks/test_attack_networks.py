"""Attacks on the shipped digits network: against foolbox, on either kind of noise, and what they leave behind."""

from pathlib import Path

import numpy as np
import pytest
import torch

from smoothcert import InputError, RunError, SmoothedClassifier, Softmax, attacks
from smoothcert.attacks.ascent import Ascent, ascend
from smoothcert.attacks.gradients import differentiable
from smoothcert.data import digits
from smoothcert.models import load_model
from smoothcert.plan import Classifier
from smoothcert.sampling.blocks import Input

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def network():
    return load_model("digits_cnn", device="cpu")


@pytest.fixture(scope="module")
def examples():
    held_out = digits(train=False)
    return [held_out[row] for row in range(len(held_out))]


def arrays(examples):
    return np.stack([e.array for e in examples]), np.array([e.label for e in examples])


def last_points(network, examples, eps, steps=40, **options):
    """Where the ascents of the paper end, before anything is made of them."""
    inputs, (_, labels) = [Input(e.id, e.array) for e in examples], arrays(examples)
    with differentiable(network) as scores:
        ascent = Ascent(steps, step=0.2, batch=1000, **options)
        return ascend(scores, inputs, labels, np.full(len(inputs), eps), ascent, CPU)


class TestFoolbox:
    """foolbox judges the last point of an ascent; so do these comparisons."""

    @staticmethod
    def points(network, examples, eps, bounds, random_start, steps=40):
        foolbox = pytest.importorskip("foolbox", reason="foolbox is not installed: nothing to compare with")
        xs, labels = (torch.from_numpy(a) for a in arrays(examples))
        attack = foolbox.attacks.L2ProjectedGradientDescentAttack(
            abs_stepsize=0.2, steps=steps, random_start=random_start
        )
        model = foolbox.PyTorchModel(network.eval(), bounds=bounds, device="cpu")
        return attack.run(model, xs, labels, epsilon=eps).detach().numpy()

    @pytest.mark.parametrize("eps", [0.25, 0.75])
    @pytest.mark.parametrize(("box", "steps"), [(None, 40), ((0.0, 1.0), 8)])
    def test_from_the_input_the_points_are_the_same(self, network, examples, eps, box, steps):
        """In the box one of the inputs passes a kink of the network at some later step, where last bits decide.

        Elsewhere 40 steps make up to 1e-5 of the last bits, and much more of an ascent that is 1 % off.
        """
        ours = last_points(network, examples[:40], eps, steps, bounds=box)
        theirs = self.points(network, examples[:40], eps, box or (-100, 100), random_start=False, steps=steps)
        np.testing.assert_allclose(ours, theirs, atol=1e-4)

    def test_from_a_random_start_as_many_succeed(self, network, examples):
        xs, labels = arrays(examples)
        torch.manual_seed(0)
        rates = []
        for points in (
            last_points(network, examples, 0.7, random_start=True),
            self.points(network, examples, 0.7, (-100, 100), random_start=True),
        ):
            with torch.no_grad():
                rates.append(np.mean(network(torch.from_numpy(points)).argmax(1).numpy() != labels))
        assert 0.2 < rates[0] < 0.8
        assert abs(rates[0] - rates[1]) < 4 * np.sqrt(2 * 0.25 / len(xs))


def test_random_starts_fill_the_ball(network, examples):
    """Uniform in a ball of d dimensions: ‖δ‖/ε raised to the power d is uniform between 0 and 1."""
    from scipy import stats

    def nothing(x):
        return x.flatten(1)[:, :2]

    inputs = [Input(str(i), np.zeros(3, dtype=np.float32)) for i in range(2000)]
    with torch.no_grad():
        ascent = Ascent(steps=1, step=1e-9, random_start=True)
        points = ascend(nothing, inputs, np.zeros(2000, dtype=np.int64), np.full(2000, 0.5), ascent, CPU)
    assert stats.kstest((np.linalg.norm(points, axis=1) / 0.5) ** 3, "uniform").pvalue > 1e-3
    assert abs(points.mean(axis=0)).max() < 4 * 0.5 / np.sqrt(5 * 2000)


@pytest.mark.parametrize("noise", ["gaussian", "grid"])
def test_the_smoothed_classifier_loses_where_it_says(network, examples, noise):
    xs, labels = arrays(examples[:8])
    smoothed = SmoothedClassifier(
        network, sigma=0.25, num_classes=10, noise=noise, levels=16 if noise == "grid" else None, seed=0
    )
    attack = attacks.smoothed_pgd(smoothed, xs, labels, [0.5, 1.5], draws=8, n=300)
    found = np.isfinite(attack.norms) & (attack.norms > 0)
    assert found.any()
    assert (np.linalg.norm(attack.deltas[found].reshape(found.sum(), -1), axis=1) <= 1.5).all()
    again = smoothed.predict_batch(list((xs + attack.deltas).astype(np.float32)), max_n=300)
    assert (np.array(again) != labels).tolist() == np.isfinite(attack.norms).tolist()


def test_the_smoothed_attack_beats_the_plain_one_on_the_smoothed_classifier(network, examples):
    """At the same ε the mean probability of the label falls at least as far as at the points that fool the network."""
    from scipy.stats import norm

    inputs, labels = [Input(e.id, e.array) for e in examples[:40]], arrays(examples[:40])[1]
    noise = 0.25 * torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with differentiable(network) as scores:
        ends = [
            ascend(scores, inputs, labels, np.full(40, 0.7), Ascent(20, draws=m), CPU, classifier)
            for classifier, m in ((None, 1), (Classifier(0.25, 10), 16))
        ]
        shares = []
        for points in ends:
            noisy = (torch.from_numpy(points)[:, None] + noise).flatten(0, 1)
            probabilities = scores(noisy).softmax(1).reshape(40, 64, -1).mean(1).numpy()
            shares.append(probabilities[np.arange(40), labels])
    lower = shares[0] - shares[1]
    assert lower.mean() / (lower.std() / np.sqrt(40)) > norm.ppf(0.999)


def test_an_ascent_follows_the_temperature_of_soft_votes(network, examples):
    """Votes by softmax of the scores / T are those by softmax of a network whose scores are divided by T."""
    inputs, labels = [Input(e.id, e.array) for e in examples[:10]], arrays(examples[:10])[1]

    def ends(scores, temperature):
        classifier = Classifier(0.25, 10, votes=Softmax(temperature))
        return ascend(scores, inputs, labels, np.full(10, 0.7), Ascent(5, draws=8), CPU, classifier)

    with differentiable(network) as scores:
        divided = ends(lambda x: scores(x) / 4, 1.0)
        np.testing.assert_allclose(ends(scores, 4.0), divided, atol=1e-5)
        assert abs(ends(scores, 1.0) - divided).max() > 1e-2


def test_a_larger_ball_more_never_loses_a_success(network, examples):
    xs, labels = arrays(examples[:30])
    alone = attacks.pgd(network, xs, labels, [0.5])
    together = attacks.pgd(network, xs, labels, [1.0, 0.5, 0.75])
    assert together.eps.tolist() == [0.5, 0.75, 1.0]
    assert (together.success[:, 0] >= alone.success[:, 0]).all()
    assert 0 < alone.success.mean() < 1


def test_answers_depend_on_seed_and_input_alone(network, examples):
    xs, labels = arrays(examples[:6])
    together = attacks.pgd(network, xs, labels, 1.0, seed=3)
    alone = attacks.pgd(network, xs[4:], labels[4:], 1.0, seed=3, batch=1)
    np.testing.assert_allclose(together.norms[4:], alone.norms, rtol=1e-3)
    assert abs(together.norms - attacks.pgd(network, xs, labels, 1.0, seed=4).norms).max() > 1e-3


def test_the_box_is_kept(network, examples):
    xs, labels = arrays(examples[:20])
    attack = attacks.pgd(network, xs, labels, 1.5, bounds=(0, 1))
    points = xs + attack.deltas
    assert points.min() >= 0
    assert points.max() <= 1
    free = attacks.pgd(network, xs, labels, 1.5)
    assert (xs + free.deltas).min() < 0
    assert np.isfinite(attack.norms).any()


def test_the_model_is_left_as_it_was(examples):
    """Training flags, requires_grad, .grad and running statistics; also when the caller has turned gradients off."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.Dropout(0.5),
        torch.nn.Flatten(),
        torch.nn.Linear(144, 10),
    )
    module[1].eval()
    module[0].weight.requires_grad_(False)
    module(torch.rand(5, 1, 8, 8)).sum().backward()

    def state():
        grads = [None if p.grad is None else p.grad.clone() for p in module.parameters()]
        flags = [m.training for m in module.modules()], [p.requires_grad for p in module.parameters()]
        return grads, flags, {k: v.clone() for k, v in module.state_dict().items()}

    xs, labels = arrays(examples[:4])
    smoothed = SmoothedClassifier(module, sigma=0.25, num_classes=10, seed=0)
    grads, flags, weights = state()
    before = attacks.pgd(module, xs, labels, 0.5)
    with torch.no_grad():
        attacks.smoothed_pgd(smoothed, xs, labels, 0.5, draws=2, steps=2, n=100)
    with torch.inference_mode():
        after = attacks.pgd(module, xs, labels, 0.5)
    np.testing.assert_array_equal(before.norms, after.norms)
    grads_after, flags_after, weights_after = state()
    assert flags_after == flags
    assert all((a is None and b is None) or torch.equal(a, b) for a, b in zip(grads, grads_after, strict=True))
    assert all(torch.equal(weights[k], v) for k, v in weights_after.items())
    assert torch.is_grad_enabled()


class Labels(torch.nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :10].argmax(1)


class Detached(torch.nn.Module):
    def forward(self, x):
        return x.detach().flatten(1)[:, :10]


class Lost(torch.nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :10] * float("nan")


X = np.zeros((2, 1, 8, 8), dtype=np.float32)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": lambda batch: batch}, InputError, "only a torch module gives"),
        ({"model": Path("model.onnx")}, InputError, "only a torch module gives"),
        ({"model": Labels()}, InputError, "returns labels, which have no gradient"),
        ({"model": Detached()}, InputError, "scores have no gradient"),
        ({"model": Lost()}, RunError, "NaN or infinite"),
        ({"model": torch.nn.Linear(3, 2)}, InputError, "does not take a batch of shape"),
        ({"labels": [0, 10]}, InputError, "labels must be one whole number below 10"),
        ({"labels": [0]}, InputError, "for each of the 2 inputs"),
        ({"xs": []}, InputError, "one input or more"),
        ({"eps": 0}, InputError, "eps must be positive"),
        ({"eps": []}, InputError, "eps must be positive"),
        ({"eps": "wide"}, InputError, "eps must be positive"),
        ({"steps": 0}, InputError, "steps must be a whole number"),
        ({"step": -1.0}, InputError, "step must be a positive number"),
        ({"batch": 0}, InputError, "batch must be a whole number"),
        ({"seed": 0.5}, InputError, "seed must be a whole number"),
        ({"bounds": (0.5, 1)}, InputError, "outside the box"),
    ],
)
def test_bad_arguments(network, change, error, message):
    arguments = {"model": network, "xs": X, "labels": [0, 1], "eps": 0.5, **change}
    with pytest.raises(error, match=message):
        attacks.pgd(**arguments)


def test_a_smoothed_classifier_without_gradients_is_refused():
    smoothed = SmoothedClassifier(lambda batch: batch.reshape(len(batch), -1)[:, :3], sigma=0.5, num_classes=3, seed=0)
    for call in (attacks.smoothed_pgd, attacks.search_balls):
        with pytest.raises(InputError, match="only a torch module gives"):
            call(smoothed, X, [0, 1], [0.5, 0.5])
