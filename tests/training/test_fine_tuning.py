"""A user's own module, from its own weights, with its own normalisation."""

import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from smoothcert.data import digits
from smoothcert.errors import InputError
from smoothcert.models import load_model
from smoothcert.training import train

OWN = '''
import torch
from torch import nn

class Own(nn.Module):
    """With batch normalisation, dropout, and a weight under two names."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2))
        self.hidden = nn.Linear(16 * 36, 32)
        self.again = self.hidden
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(torch.relu(self.hidden(self.features((x - 0.3) / 0.4))))

def build():
    return Own()

def labels():
    return lambda batch: batch.argmax(1)

def pictures():
    return nn.Conv2d(1, 1, 3)
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_network.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_network:build"
    sys.modules.pop("own_network", None)


def tune(arch, out, **changes):
    plan = {"sigma": 0.5, "epochs": 3, "batch": 128, "rate": 0.1, "augment": False, "device": "cpu", **changes}
    return train(arch, "digits", out=out, **plan)


def accuracy(model, sigma):
    data = digits(train=False)
    x = torch.from_numpy(np.stack([data[row].array for row in range(len(data))]))
    y = torch.tensor([data[row].label for row in range(len(data))])
    x = x + sigma * torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        return float((model.eval()(x).argmax(1) == y).float().mean())


def test_a_few_epochs_under_noise_make_a_network_stand_it(own, tmp_path):
    tune(own, tmp_path / "plain", sigma=0.0, epochs=10)
    weights = tmp_path / "plain" / "last.safetensors"
    tune(own, tmp_path / "tuned", weights=weights, epochs=5)
    plain, tuned = (load_model(own, weights=tmp_path / name / "last.safetensors") for name in ("plain", "tuned"))
    assert accuracy(plain, 0.0) > 0.9
    assert accuracy(tuned, 0.5) > accuracy(plain, 0.5) + 0.05


def test_the_first_step_starts_from_the_weights(own, tmp_path):
    torch.manual_seed(5)
    model = load_model(own, device="cpu")
    torch.save(model.state_dict(), tmp_path / "own.pt")
    tune(own, tmp_path / "out", weights=tmp_path / "own.pt", epochs=1, rate=1e-9)
    there = load_file(tmp_path / "out" / "last.safetensors")
    torch.testing.assert_close(there["head.weight"], model.head.weight.detach())


def test_dropout_and_shared_weights_resume_to_the_bit(own, tmp_path):
    def stop(images, done):
        if done > 0.5:
            raise KeyboardInterrupt

    tune(own, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        tune(own, tmp_path / "parts", on_progress=stop)
    torch.rand(3)  # what others draw plays no part
    tune(own, tmp_path / "parts")
    first, second = (load_file(tmp_path / name / "last.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(first["hidden.weight"], first["again.weight"])


def test_frozen_parts_stay_as_they_are_to_the_last_mean(own, tmp_path):
    torch.manual_seed(5)
    before = load_model(own, device="cpu").state_dict()
    torch.save(before, tmp_path / "own.pt")
    tune(own, tmp_path / "out", weights=tmp_path / "own.pt", freeze="features.*, head.bias")
    after = load_file(tmp_path / "out" / "last.safetensors")
    kept = {name for name in before if torch.equal(before[name], after[name])}
    assert kept == {name for name in before if name.startswith("features.")} | {"head.bias"}


def test_other_first_weights_are_another_training(own, tmp_path):
    for seed in (1, 2):
        torch.manual_seed(seed)
        torch.save(load_model(own, device="cpu").state_dict(), tmp_path / f"{seed}.pt")
    tune(own, tmp_path / "out", weights=tmp_path / "1.pt", epochs=1)
    with pytest.raises(InputError, match="holds a training with weights"):
        tune(own, tmp_path / "out", weights=tmp_path / "2.pt", epochs=1)


def test_weights_of_a_built_in_network_bring_its_options(tmp_path):
    tiny = {"width": 8, "depth": 1, "dense": 16}
    tune("liresnet", tmp_path / "first", epochs=1, options=tiny)
    tune("liresnet", tmp_path / "second", epochs=1, weights=tmp_path / "first" / "last.safetensors")
    assert load_model("liresnet", weights=tmp_path / "second" / "last.safetensors").input_shape == (1, 8, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"freeze": "feature.*"}, "'feature.*' matches no part of the network: its parts are features, hidden, head"),
        ({"freeze": "*"}, "leaves nothing to train"),
        ({"options": {"width": 3}}, "a factory is called without arguments"),
        ({"arch": "own_network:labels"}, "is no torch module, and only those can be trained"),
        ({"arch": "own_network:pictures"}, r"returns no scores \(inputs, classes\)"),
        ({"arch": "own_network:absent"}, "has no 'absent'"),
        ({"weights": "nowhere.pt"}, "nowhere.pt does not exist"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(own, tmp_path, changes, message):
    with pytest.raises(InputError, match=message) as caught:
        tune(**{"arch": own, "out": tmp_path / "out", **changes})
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "state.safetensors").exists()
