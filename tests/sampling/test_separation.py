"""Rows that see each other are found before the first draw; rows that do not are left in peace."""

import numpy as np
import pytest
import torch
from torch import nn

from interruptible import certify
from smoothcert import InputError, SmoothedClassifier
from smoothcert.models import build
from smoothcert.plan import Labels
from smoothcert.sampling.blocks import Input
from smoothcert.sampling.engines import open_engine
from smoothcert.sampling.engines.agreement import tolerance_of
from smoothcert.sampling.executor import Job
from smoothcert.sampling.identity import Identity
from smoothcert.sampling.noise import Gaussian, open_noise
from smoothcert.sampling.separation import MIXED, RANDOM, fault

WEIGHTS = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
X = np.random.default_rng(1).integers(0, 17, (1, 4, 4)).astype(np.float32) / 16


def scores(batch):
    return batch.reshape(len(batch), -1) @ WEIGHTS


MIXING = {
    "mean": lambda b: scores(np.repeat(b.mean(0, keepdims=True), len(b), axis=0)),
    "a little of the mean": lambda b: scores(b) + 0.1 * scores(b).mean(0),
    "pairs": lambda b: scores(b) + scores(b)[np.minimum(np.arange(len(b)) ^ 1, len(b) - 1)],
    "the row before": lambda b: scores(np.roll(b, 1, axis=0)),
    "the first row": lambda b: scores(b - b[:1]),
    "the place": lambda b: scores(b) + np.arange(len(b))[:, None],
    "the largest": lambda b: scores(b) / abs(scores(b)).max(),
    "sorted": lambda b: np.sort(scores(b), axis=0),
    "the mean beside a masked class": lambda b: np.c_[
        scores(b)[:, :2] + scores(b)[:, :2].mean(0), np.full(len(b), -1e9)
    ],
    "the mean far from zero": lambda b: scores(b) + scores(b).mean(0) + 5000,
    "the mean of logarithms": lambda b: scores(b) + np.log(b + 2).mean(),
    "divided by the largest": lambda b: scores(b / b.max()),
    "the largest added": lambda b: scores(b) + scores(b).max(0),
    "the last row": lambda b: scores(b) + scores(b)[-1:],
    "labels": lambda b: scores(np.repeat(b.mean(0, keepdims=True), len(b), axis=0) + b * 0.3).argmax(1),
    "majority": lambda b: np.full(len(b), np.bincount(scores(b).argmax(1)).argmax()),
}


def found(model, x=X, batch=100, noise=None, engine="torch"):
    job = Job(noise or Gaussian(0.25), 3, seed=0, batch=batch, votes=Labels())
    return fault(open_engine(model, engine), Input("0", x), job)


@pytest.mark.parametrize("noise", [Gaussian(0.25), open_noise("grid", 0.25, 16)], ids=lambda noise: noise.name)
@pytest.mark.parametrize("batch", [2, 7, 100, 1600])
@pytest.mark.parametrize("name", MIXING)
def test_rows_that_see_each_other(name, batch, noise):
    if name in ("labels", "majority") and batch < 100:
        pytest.skip("a few labels may be the same by chance")
    assert found(MIXING[name], batch=batch, noise=noise) == MIXED


@pytest.mark.parametrize("x", [np.zeros((1, 4, 4)), np.full((1, 4, 4), 0.5), np.full((1, 4, 4), -1.0)])
def test_the_others_are_far_away_whatever_the_input_is(x):
    assert found(MIXING["mean"], x.astype(np.float32)) == MIXED


def test_a_random_model_is_called_random():
    generator = np.random.default_rng(0)
    assert found(lambda b: scores(b) + generator.normal(size=(len(b), 3))) == RANDOM


def in_place(batch):
    batch += 1
    return scores(batch)


@pytest.mark.parametrize(
    "model", [scores, lambda b: scores(b).argmax(1), in_place], ids=["scores", "labels", "in place"]
)
@pytest.mark.parametrize("batch", [1, 2, 7, 100, 1600])
def test_rows_that_do_not(model, batch):
    assert found(model, batch=batch) is None


@pytest.mark.parametrize("engine", ["torch", "torch+folded", "torch+bf16"])
@pytest.mark.parametrize("name", ["cifar_resnet20", "cifar_small"])
def test_networks_are_left_in_peace(name, engine):
    torch.manual_seed(0)
    x = np.random.default_rng(0).random((3, 32, 32)).astype(np.float32)
    assert found(build(name), x, batch=20, engine=engine) is None


def test_arithmetic_of_16_bits_may_differ_more():
    words = (
        "bf16",
        "bfloat16+float32",
        "float16",
        "float32 with bf16 products",
        "float32 with tf32 products",
        "float32",
    )
    assert [tolerance_of(Identity("torch", "", "cpu", p)) for p in words] == [(0.05, 0.03)] * 4 + [(1e-3, 1e-5)] * 2


def test_batch_norm_by_its_name():
    norm = nn.BatchNorm2d(4, track_running_stats=False)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.Flatten(), nn.Linear(16, 3))
    smoothed = SmoothedClassifier(network, sigma=0.25, num_classes=3, seed=0)
    with pytest.raises(InputError, match=r"among other rows, for its batch norm '1' has no running statistics"):
        smoothed.certify(X, n=200)


def test_no_call_draws_from_rows_that_see_each_other(tmp_path):
    smoothed = SmoothedClassifier(MIXING["mean"], sigma=0.25, num_classes=3, seed=0)
    for ask in (smoothed.certify, smoothed.predict, lambda x: smoothed.count(x, 100)):
        with pytest.raises(InputError, match="a certificate is about one input"):
            ask(X)
    path = tmp_path / "run.smoothcert"
    with pytest.raises(InputError, match="gives the same rows other answers"):
        certify(path, MIXING["mean"])
    assert not path.exists()


def test_a_resumed_run_is_checked_too(tmp_path):
    model, path = Turncoat(), tmp_path / "run.smoothcert"

    def stopped(draws, done):
        if done > 0.3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certify(path, model, on_progress=stopped)
    model.name = "mean"
    with pytest.raises(InputError, match="gives the same rows other answers"):
        certify(path, model)


class Turncoat:
    """Rows that see each other from some moment on."""

    name = None

    def __call__(self, batch):
        return scores(batch) if self.name is None else MIXING[self.name](batch)
