"""Each objective against its definition, and what its training leaves alone."""

import dataclasses
import math

import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import norm
from torch import nn
from torch.nn import functional

from smoothcert.errors import InputError
from smoothcert.training import train
from smoothcert.training.objectives import OBJECTIVES, Consistency, Gaussian, Macer, SmoothAdv, Task

SIGMA = 0.5


class Recorded:
    """Noise from a seed, kept for the test to use again."""

    def __init__(self, sigma=SIGMA):
        self.generator, self.sigma, self.drawn = torch.Generator().manual_seed(0), sigma, []

    def __call__(self, x):
        self.drawn.append(self.sigma * torch.randn(x.shape, generator=self.generator))
        return self.drawn[-1]


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.rand(6, 3, 4, 4, generator=generator), torch.tensor([0, 1, 2, 3, 0, 1])


@pytest.fixture
def network():
    torch.manual_seed(2)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 4))


def task_of(network, noise, criterion=functional.cross_entropy):
    return Task(network, lambda module, x: module(x), criterion, noise, SIGMA)


def softmax(scores, factor=1.0):
    shares = [math.exp(factor * s) for s in scores]
    return [share / sum(shares) for share in shares]


def answers(network, batch, noise, copies):
    """The scores of each image's copies, image by image, under the noise that was drawn."""
    x, _ = batch
    scores = network(x.repeat(copies, 1, 1, 1) + noise.drawn[0]).tolist()
    return [[scores[c * len(x) + i] for c in range(copies)] for i in range(len(x))]


def test_gaussian_is_the_cross_entropy_under_noise(network, batch):
    noise = Recorded()
    loss, right = Gaussian().loss(task_of(network, noise), *batch)
    shares = [softmax(scores[0]) for scores in answers(network, batch, noise, 1)]
    assert loss.item() == pytest.approx(-sum(math.log(p[y]) for p, y in zip(shares, batch[1], strict=True)) / 6)
    assert right.item() == pytest.approx(sum(p[y] == max(p) for p, y in zip(shares, batch[1], strict=True)) / 6)


def test_consistency_adds_divergence_from_the_mean_and_its_entropy(network, batch):
    noise = Recorded()
    loss, _ = Consistency(copies=3, agreement=7.0, entropy=0.4).loss(task_of(network, noise), *batch)
    total = 0.0
    for y, scores in zip(batch[1].tolist(), answers(network, batch, noise, 3), strict=True):
        shares = [softmax(s) for s in scores]
        mean = [sum(column) / 3 for column in zip(*shares, strict=True)]
        total -= sum(math.log(p[y]) for p in shares) / 3
        total += 7.0 * sum(m * math.log(m / q) for p in shares for m, q in zip(mean, p, strict=True)) / 3
        total -= 0.4 * sum(m * math.log(m) for m in mean)
    assert loss.item() == pytest.approx(total / 6, rel=1e-5)


def test_smoothadv_trains_at_the_point_that_is_worst_for_all_draws(network, batch):
    """Of two classes a linear network has one worst direction, whatever the noise."""
    x, y = batch[0], batch[1] % 2
    network[1] = nn.Linear(48, 2)
    noise = Recorded()
    loss, _ = SmoothAdv(copies=3, radius=0.7, steps=4).loss(task_of(network, noise), x, y)
    away = (network[1].weight[1 - y] - network[1].weight[y]).detach()
    worst = x + 0.7 * (away / away.norm(dim=1, keepdim=True)).view(x.shape)
    scores = network(worst.repeat(3, 1, 1, 1) + noise.drawn[0])
    assert loss.item() == pytest.approx(functional.cross_entropy(scores, y.repeat(3)).item(), rel=1e-5)


def test_smoothadv_searches_in_evaluation_mode(batch):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 4)).train()
    SmoothAdv(copies=2, steps=5).loss(task_of(network, Recorded()), *batch)
    assert network[1].num_batches_tracked == 1
    assert all(module.training for module in network.modules())
    assert all(parameter.grad is None for parameter in network.parameters())


def test_macer_adds_what_is_missing_of_the_radius_where_the_class_is_right(network, batch):
    noise = Recorded()
    loss, _ = Macer(draws=5, hinge=3.0).loss(task_of(network, noise), *batch)
    total, rights = 0.0, 0
    for y, scores in zip(batch[1].tolist(), answers(network, batch, noise, 5), strict=True):
        plain, sharp = ([sum(c) / 5 for c in zip(*(softmax(s, b) for s in scores), strict=True)] for b in (1.0, 16.0))
        total -= math.log(plain[y] + 1e-10)
        if sharp[y] == max(sharp):
            rival = max(p for j, p in enumerate(sharp) if j != y)
            gap = norm.ppf(min(sharp[y], 1 - 1e-6)) - norm.ppf(max(rival, 1e-6))
            total += 3.0 * SIGMA / 2 * max(0.0, 8 - gap)
            rights += 1
    assert 0 < rights < 6
    assert loss.item() == pytest.approx(total / 6, rel=1e-4)


@pytest.mark.parametrize("kind", OBJECTIVES, ids=lambda kind: kind.name)
def test_scores_without_bounds_give_finite_gradients(kind, batch):
    """Certain of a right class, certain of a wrong one: no logarithm of 0, no quantile of 1."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(48, 4))
    with torch.no_grad():
        network[1].weight.mul_(1000)
    loss, _ = kind().loss(task_of(network, Recorded()), *batch)
    loss.backward()
    assert math.isfinite(loss.item())
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, id=k.name, marks=[pytest.mark.slow] * (k not in (Gaussian, SmoothAdv))) for k in OBJECTIVES],
)
def test_every_objective_trains_and_resumes_to_the_bit(kind, tmp_path):
    plan = {"sigma": 0.5, "epochs": 4, "batch": 128, "rate": 0.1, "augment": False, "device": "cpu"}
    plan["objective"] = kind.name

    def stop(images, done):
        if done > 0.6:
            raise KeyboardInterrupt

    whole = train("digits_cnn", "digits", out=tmp_path / "whole", **plan)
    with pytest.raises(KeyboardInterrupt):
        train("digits_cnn", "digits", out=tmp_path / "parts", **plan, on_progress=stop)
    parts = train("digits_cnn", "digits", out=tmp_path / "parts", **plan)
    assert [(e.loss, e.accuracy) for e in whole] == [(e.loss, e.accuracy) for e in parts]
    first, second = (load_file(tmp_path / where / "last.safetensors") for where in ("whole", "parts"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    plan["objective"] = "gaussian" if kind is not Gaussian else "consistency"
    with pytest.raises(InputError, match="holds a training with objective"):
        train("digits_cnn", "digits", out=tmp_path / "whole", **plan)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"objective": "magic"}, "unknown objective 'magic': choose one of gaussian, consistency, smoothadv, macer"),
        ({"copies": 2}, "`copies` says nothing about gaussian objective"),
        ({"objective": "consistency", "copies": 1}, "copies must be a whole number of at least 2"),
        ({"objective": "smoothadv", "radius": 0.0}, "radius must be a positive number"),
        ({"objective": "macer", "steps": 3}, "`steps` says nothing about macer objective"),
        ({"objective": "macer", "temperature": 0.5}, "macer has a cross entropy of its own"),
        ({"objective": "macer", "draws": 1}, "draws must be a whole number of at least 2"),
    ],
)
def test_what_an_objective_does_not_have_cannot_be_said(tmp_path, given, message):
    with pytest.raises(InputError, match=message):
        train("digits_cnn", "digits", sigma=0.5, out=tmp_path, **given)


def test_each_option_has_one_default_whichever_objective_has_it():
    defaults = {}
    for kind in OBJECTIVES:
        for field in dataclasses.fields(kind):
            assert defaults.setdefault(field.name, field.default) == field.default
