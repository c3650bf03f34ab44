"""ONNX Runtime casts the votes that eager PyTorch casts."""

import types

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import InputError, SmoothedClassifier
from smoothcert.data import digits
from smoothcert.models import build
from smoothcert.sampling.engines import open_engine

pytest.importorskip("onnxruntime", reason="the extra smoothcert[onnx] is not installed")

X = np.random.default_rng(0).random((1, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    return build("digits_cnn")


def test_a_module_votes_alike_in_both_engines(module):
    module.train()
    eager, onnx = (
        SmoothedClassifier(module, sigma=0.5, num_classes=10, engine=engine, batch=150, seed=0)
        for engine in ("torch", "onnx")
    )
    assert np.abs(eager.count(X, 3000) - onnx.count(X, 3000)).sum() <= 2  # a tie within rounding may fall either way
    assert module.training
    assert eager.engine.identity != onnx.engine.identity


SETTINGS = types.ModuleType("settings")
SETTINGS.sign = 1.0


class ReadsElsewhere(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = torch.nn.Linear(64, 10)

    def forward(self, x):
        return SETTINGS.sign * self.head(x.flatten(1))


def test_the_votes_of_a_run_are_those_of_the_model_that_its_fingerprint_names(tmp_path, monkeypatch):
    """Whatever the classifier has run before, and wherever the change was made."""

    def classifier():
        return SmoothedClassifier(model, sigma=0.25, num_classes=10, seed=1, engine="onnx", batch=200)

    model, data = ReadsElsewhere().eval(), digits(train=False)
    used = classifier()
    used.count(data[0].array, 200)
    monkeypatch.setattr(SETTINGS, "sign", -1.0)
    one, other = (
        smoothed.certify_dataset(data, out=tmp_path / f"{name}.smoothcert", n=200, limit=3)
        for name, smoothed in (("used", used), ("new", classifier()))
    )
    assert one.plan.classifier.model == other.plan.classifier.model
    assert np.array_equal(one.tally.selections, other.tally.selections)


def test_the_tail_of_a_log_sigmoid_is_that_of_torch():
    """A certificate by a constant reaches far from its input, where no draw compares the engines."""
    rows = torch.linspace(-200, 200, 4_001)[:, None]
    module = nn.Sequential(nn.Linear(1, 1), nn.LogSigmoid()).eval()
    engine = open_engine(module, "onnx")
    with engine.ready(), torch.no_grad():
        torch.testing.assert_close(engine(rows), module(rows), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("batch", [64, None])
def test_a_file_with_a_fixed_or_a_free_batch_size(module, tmp_path, batch):
    shapes = {"dynamic_shapes": [{0: torch.export.Dim("batch")}]} if batch is None else {}
    program = torch.onnx.export(
        module.eval(), (torch.zeros(batch or 2, 1, 8, 8),), dynamo=True, verbose=False, **shapes
    )
    program.save(tmp_path / "model.onnx")
    file = SmoothedClassifier(tmp_path / "model.onnx", sigma=0.5, num_classes=10, batch=150, seed=0)
    eager = SmoothedClassifier(module, sigma=0.5, num_classes=10, batch=150, seed=0)
    assert np.abs(file.count(X, 1000) - eager.count(X, 1000)).sum() <= 2


def test_files_that_are_no_models(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    with pytest.raises(InputError, match="ONNX Runtime cannot open"):
        SmoothedClassifier(tmp_path / "bad.onnx", sigma=0.5, num_classes=10, seed=0).certify(X)
    with pytest.raises(InputError, match="cannot be read"):
        SmoothedClassifier(tmp_path / "none.onnx", sigma=0.5, num_classes=10, seed=0)


def test_a_module_that_cannot_be_exported():
    class Fickle(torch.nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :3] if x.sum().item() > 0 else x.flatten(1)[:, 3:6]

    with pytest.raises(InputError, match="cannot be exported to ONNX"):
        SmoothedClassifier(Fickle(), sigma=0.5, num_classes=3, engine="onnx", batch=10, seed=0).certify(X)
