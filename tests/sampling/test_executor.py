"""Votes do not depend on the batch; a model that misbehaves is named with its input."""

from contextlib import nullcontext
from threading import get_ident
from time import sleep

import numpy as np
import pytest
import torch

from smoothcert import SmoothedClassifier
from smoothcert.errors import InputError, RunError
from smoothcert.plan import Labels
from smoothcert.sampling.blocks import Input, Phase, blocks_of, join
from smoothcert.sampling.engines import open_engine
from smoothcert.sampling.executor import Executor, Job
from smoothcert.sampling.noise import Gaussian

INPUTS = [Input(f"row {i}", np.full((2, 3), i / 4, dtype=np.float32)) for i in range(5)]


def executor(model, batch=100, inputs=INPUTS, num_classes=3):
    engine = open_engine(model)
    return Executor(engine, inputs.__getitem__, Job(Gaussian(0.5), num_classes, 0, batch, Labels()))


def by_sum(batch):
    """A label that any order of summation agrees on: which of three values is largest."""
    return batch[:, 0].argmax(axis=1)


def votes(runner, draws=250):
    counts = np.zeros((len(INPUTS), 3), dtype=int)
    for v in runner.run(b for i in range(len(INPUTS)) for b in blocks_of(i, Phase.ESTIMATION, draws)):
        assert v.counts.sum() == v.draws
        counts[v.position, v.classes] += v.counts
    return counts


def test_votes_do_not_depend_on_the_batch():
    reference = votes(executor(by_sum))
    assert (reference.sum(axis=1) == 250).all()
    for batch in (1, 7, 100, 256, 5000):
        np.testing.assert_array_equal(votes(executor(by_sum, batch)), reference)


class InLanes:
    """An engine that is called from several threads, and answers its first batches late."""

    device, identity, fingerprint = torch.device("cpu"), "lanes", "none"

    def __init__(self, lanes):
        self.lanes, self.threads, self.late = lanes, set(), iter([0.05, 0.0, 0.02])

    def ready(self):
        return nullcontext()

    def __call__(self, batch):
        self.threads.add(get_ident())
        sleep(next(self.late, 0.001))
        return torch.from_numpy(by_sum(batch.numpy()))


@pytest.mark.parametrize("batch", [1, 7, 100, 256])
@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_votes_depend_neither_on_the_lanes_nor_on_what_shares_a_batch(batch, lanes):
    engine = InLanes(lanes)
    runner = Executor(engine, INPUTS.__getitem__, Job(Gaussian(0.5), 3, 0, batch, Labels()))
    blocks = [b for i in range(len(INPUTS)) for b in blocks_of(i, Phase.ESTIMATION, 250)]
    alone = {(b.position, b.index): next(executor(by_sum).run([b])) for b in blocks}
    drawn = list(runner.run(blocks))
    assert [(v.position, i) for v in drawn for i in range(v.first, v.last)] == list(alone)
    for v in drawn:
        expected = join([alone[v.position, i] for i in range(v.first, v.last)])
        assert v.says_the_same_as(expected)
        assert v.draws == expected.draws
    assert (max(v.last - v.first for v in drawn) > 1) == (batch >= 100)
    assert min(lanes, 2) <= len(engine.threads) <= lanes


def test_a_model_that_fails_in_one_lane_ends_the_run():
    class Failing(InLanes):
        def __call__(self, batch):
            if next(self.late, None) is None:
                raise ValueError("no more")
            return torch.from_numpy(by_sum(batch.numpy()))

    runner = Executor(Failing(3), INPUTS.__getitem__, Job(Gaussian(0.5), 3, 0, 7, Labels()))
    with pytest.raises(RunError, match="no more"):
        votes(runner)


def test_every_batch_has_the_same_shape():
    shapes = []
    votes(executor(lambda batch: shapes.append(batch.shape) or by_sum(batch), batch=64))
    assert set(shapes) == {(64, 2, 3)}


def test_scores_and_labels_agree():
    scores = votes(executor(lambda batch: batch[:, 0]))
    np.testing.assert_array_equal(scores, votes(executor(by_sum)))
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 3, bias=False))
    with torch.no_grad():
        module[1].weight.copy_(torch.eye(3, 6))
    np.testing.assert_array_equal(votes(executor(module)), scores)


def test_none_asks_for_an_answer_before_the_batch_is_full():
    runner, log = executor(by_sum, batch=1000), []

    def blocks():
        yield from blocks_of(0, Phase.ESTIMATION, 150)
        yield None
        assert len(log) == 1
        yield from blocks_of(1, Phase.ESTIMATION, 150)

    for v in runner.run(blocks()):
        log.append(v)
    assert [(v.position, v.draws) for v in log] == [(0, 150), (1, 150)]


def test_evaluation_mode_and_gradients_are_set_and_restored():
    seen = []

    class Spy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen = torch.nn.BatchNorm1d(6).eval()
            self.layer = torch.nn.Linear(6, 3)

        def forward(self, x):
            y = self.layer(self.frozen(x.flatten(1)))
            seen.append((self.training, y.requires_grad))
            return y

    module = Spy()
    votes(executor(module))
    assert set(seen) == {(False, False)}
    assert module.training
    assert module.layer.training
    assert not module.frozen.training


def third_input(value):
    """A callable whose answer is spoiled around the third input, which lies at 0.5."""

    def model(batch):
        scores = batch[:, 0].copy()
        scores[np.abs(batch.mean(axis=(1, 2)) - 0.5) < 0.02] = value
        return scores

    return model


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_name_the_input(value):
    quiet = [Input(f"row {i}", np.full((2, 3), i / 4, dtype=np.float32)) for i in range(5)]
    noise = Gaussian(1e-3)
    runner = Executor(open_engine(third_input(value)), quiet.__getitem__, Job(noise, 3, 0, 64, Labels()))
    with pytest.raises(RunError, match="NaN or infinite for input row 2"):
        votes(runner)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (lambda b: b[:, 0, :2], InputError, "returned 2 scores for input row 0, expected 3"),
        (lambda b: b[:50, 0], InputError, "returned shape"),
        (lambda b: b, InputError, "returned shape"),
        (lambda b: b[:, 0, 0], InputError, "one float per input"),
        (lambda b: np.full(len(b), 3), RunError, "label out of range for input row 0"),
        (lambda b: np.full(len(b), -1), RunError, "label out of range for input row 0"),
        (lambda b: np.array(["cat"] * len(b)), InputError, "values of type"),
        (lambda b: 1 / 0, RunError, "division by zero"),
        (torch.nn.Linear(99, 3), RunError, "the model failed on a batch"),
        (torch.nn.LSTM(3, 3, batch_first=True), InputError, "not a tensor"),
    ],
)
def test_a_model_that_misbehaves(model, error, message):
    with pytest.raises(error, match=message) as refusal:
        votes(executor(model))
    assert "\n" not in str(refusal.value)


class Answers(torch.nn.Module):
    """Scores or labels as some other kind of tensor."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        return self.change(x[:, 0])


@pytest.mark.parametrize(
    "change",
    [
        lambda scores: scores > 0,
        lambda scores: scores.to(torch.complex64),
        lambda scores: scores.to_sparse(),
        lambda scores: scores.to(torch.float8_e4m3fn),
        lambda scores: scores.to("meta"),
        lambda scores: torch.quantize_per_tensor(scores, 0.1, 0, torch.qint8),
        lambda scores: scores.argmax(1).to(torch.uint64),
    ],
)
def test_scores_that_torch_cannot_compare_are_refused_with_one_sentence(change):
    with pytest.raises(InputError, match=r"cannot be read as scores|not a tensor|returned") as refusal:
        votes(executor(Answers(change)))
    assert "\n" not in str(refusal.value)


def test_sparse_scores_are_refused_before_the_first_draw():
    model = torch.nn.Sequential(Answers(lambda scores: scores.to_sparse())).eval()
    with pytest.raises(InputError, match=r"of layout torch\.sparse_coo: return its to_dense"):
        SmoothedClassifier(model, sigma=0.5, num_classes=4, seed=0).certify(np.ones((2, 4), dtype=np.float32), n=100)


def test_an_output_shape_that_changes():
    calls = iter(range(100))

    def model(batch):
        return batch[:, 0] if next(calls) < 2 else batch[:, 0, :2]

    with pytest.raises(InputError, match="returned 2 scores for input row 0"):
        votes(executor(model))


def test_inputs_of_different_shape():
    mixed = [INPUTS[0], Input("row 1", np.zeros((3, 3), dtype=np.float32)), *INPUTS[2:]]
    with pytest.raises(InputError, match="input row 1 has shape"):
        votes(executor(by_sum, inputs=mixed))


def test_no_model():
    with pytest.raises(InputError, match="must be a torch module or a callable"):
        open_engine(42)
    with pytest.raises(InputError, match="unknown engine 'warp'"):
        open_engine(by_sum, "warp")
