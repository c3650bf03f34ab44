"""A model that is not one function of one input is found out by `check_determinism`: its run certifies nothing."""

import itertools

import numpy as np
import pytest
import torch

import heard
from interruptible import Items, certify, interrupted_after, votes
from smoothcert import InputError, RunError, open_run

PLANS = {"fixed": {}, "adaptive": {"radii": [0.1, 0.2], "max_n": 2000}}


class Deterministic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = torch.nn.Linear(16, 3)

    def forward(self, x):
        return self.inner(x.flatten(1))


class DropoutLeftOn(Deterministic):
    """Functional dropout that does not ask whether the model is being trained: a common mistake."""

    def forward(self, x):
        return self.inner(torch.nn.functional.dropout(x.flatten(1), 0.2))


class FirstRowMatters(Deterministic):
    """One batch in four, not that of the check, is answered as its first row is."""

    def forward(self, x):
        scores = self.inner(x.flatten(1))
        return scores[:1].expand_as(scores) if x[0].sum().mul(30).frac().abs() < 0.25 else scores


def rarely_random():
    """A callable that answers at random for one draw in a thousand."""
    generator, weights = np.random.default_rng(0), np.random.default_rng(1).normal(size=(16, 3))

    def model(batch):
        scores = batch.reshape(len(batch), -1) @ weights
        scores[generator.random(len(batch)) < 0.001, generator.integers(3)] += 1000
        return scores

    return model


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("model", [FirstRowMatters, rarely_random], ids=lambda m: m.__name__)
def test_what_the_first_batch_does_not_give_away(tmp_path, model, plan):
    """Votes are drawn again among others: what is random and what sees other rows are both found."""
    path = tmp_path / "run.smoothcert"
    with pytest.raises(RunError, match=r"certifies nothing: its model is not one function of one input \(input number"):
        certify(path, model(), check_determinism=True, **plan)
    run = open_run(path)
    for use in (run.certificates, run.to_pandas):
        with pytest.raises(RunError, match="certifies nothing: its model is not one function of one input"):
            use()
    with pytest.raises(RunError, match="certifies nothing"):
        certify(path, model(), **plan)


def test_dropout_is_refused_before_the_first_draw(tmp_path):
    with pytest.raises(InputError, match="the model gives other answers when it is asked for the same rows again"):
        certify(tmp_path / "run.smoothcert", DropoutLeftOn())
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("batch", [64, 1600])
def test_a_deterministic_model_is_not_disturbed(tmp_path, plan, batch):
    """Rows of an input up to one look and from there on are drawn again in the same batch, and stay two."""
    plan = {"batch": batch, **plan}
    before = votes(certify(tmp_path / "plain.smoothcert", Deterministic(), **plan))
    assert votes(certify(tmp_path / "checked.smoothcert", Deterministic(), check_determinism=True, **plan)) == before


def test_what_is_drawn_again_is_a_small_share(tmp_path):
    calls = itertools.count()
    weights = np.random.default_rng(1).normal(size=(16, 3))

    def model(batch):
        next(calls)
        return batch.reshape(len(batch), -1) @ weights

    images = np.random.default_rng(0).random((200, 1, 4, 4)).astype(np.float32)
    certify(tmp_path / "plain.smoothcert", model, Items(images), n=450)
    plain = next(calls)
    certify(tmp_path / "checked.smoothcert", model, Items(images), n=450, check_determinism=True)
    assert next(calls) - 2 * plain < 0.2 * plain


def test_a_check_that_is_stopped_leaves_nothing_certified(tmp_path):
    path, calls = tmp_path / "run.smoothcert", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heard, "call", lambda batch: calls.append(len(batch)))
        whole = certify(tmp_path / "plain.smoothcert")
    with interrupted_after(len(calls) + 1):  # in the check: as many calls as the plain run, but the one of a row
        certify(path, check_determinism=True)
    assert open_run(path).finished
    with pytest.raises(RunError, match="certifies nothing: its model is still being checked"):
        open_run(path).certificates()
    assert certify(path).certificates() == whole.certificates()
