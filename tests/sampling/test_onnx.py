"""ONNX Runtime casts the votes that eager PyTorch casts."""

import numpy as np
import pytest
import torch

from smoothcert import InputError, SmoothedClassifier
from smoothcert.models import build

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
