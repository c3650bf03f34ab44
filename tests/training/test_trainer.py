"""A training ends with the same weights however often it is stopped, and its files say what they are."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from interruptible import listen_to_interrupts
from smoothcert.data import digits
from smoothcert.errors import InputError, RunError
from smoothcert.models import load_model
from smoothcert.models.checkpoints import read_configuration
from smoothcert.models.loading import SHIPPED_WEIGHTS
from smoothcert.training import train

TINY = {"width": 8, "depth": 1, "dense": 16}


def train_digits(out, arch="digits_cnn", **changes):
    plan = {"sigma": 0.25, "epochs": 4, "batch": 128, "augment": False, "device": "cpu", **changes}
    return train(arch, "digits", out=out, **plan)


def assert_same_tensors(first, second):
    a, b = load_file(first), load_file(second)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def accuracy(model, sigma, draws=4):
    """On the held-out digits under noise, in float32."""
    data = digits(train=False)
    x = torch.stack([torch.from_numpy(data[row].array) for row in range(len(data))])
    y = torch.tensor([data[row].label for row in range(len(data))])
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        noisy = [x + sigma * torch.randn(x.shape, generator=generator) for _ in range(draws)]
        return float(np.mean([(model.eval()(z).argmax(1) == y).float().mean() for z in noisy]))


@pytest.mark.parametrize("share", [0.74, *(pytest.param(share, marks=pytest.mark.slow) for share in (0.1, 0.76))])
@pytest.mark.parametrize(
    ("arch", "plan"),
    [
        ("digits_cnn", {}),
        ("digits_cnn", {"preset": "adam", "temperature": 0.2}),
        ("liresnet", {"options": TINY}),
        ("liresnet", {"options": {**TINY, "orthogonal": 1}, "preset": "adam"}),
    ],
)
def test_stopped_and_resumed_is_the_same_to_the_bit(tmp_path, arch, plan, share):
    def stop(images, done):
        if done > share:
            raise KeyboardInterrupt

    whole = train_digits(tmp_path / "whole", arch, **plan)
    with pytest.raises(KeyboardInterrupt):
        train_digits(tmp_path / "parts", arch, **plan, on_progress=stop)
    parts = train_digits(tmp_path / "parts", arch, **plan)
    for name in ("last", "best", "state"):
        assert_same_tensors(tmp_path / f"whole/{name}.safetensors", tmp_path / f"parts/{name}.safetensors")
    assert [(e.epoch, e.loss, e.accuracy) for e in whole] == [(e.epoch, e.loss, e.accuracy) for e in parts]


def test_a_training_from_before_there_was_a_temperature_goes_on(tmp_path):
    whole = train_digits(tmp_path, epochs=1)
    path = tmp_path / "state.safetensors"
    with safe_open(path, framework="pt") as file:
        about = file.metadata()
    configuration = json.loads(about["configuration"])
    assert configuration.pop("temperature") == 1
    save_file(load_file(path), path, {**about, "configuration": json.dumps(configuration)})
    assert train_digits(tmp_path, epochs=1) == whole
    with pytest.raises(InputError, match=r"holds a training with temperature 1\.0, not 0\.2"):
        train_digits(tmp_path, epochs=1, temperature=0.2)


def stopped_by(number, out, epochs):
    """What `smoothcert train` says, and returns, when the signal comes after some whole epoch."""
    command = (
        f"train digits_cnn digits --sigma 0.25 --epochs {epochs} --batch 128 --no-augment --device cpu --out {out}"
    )
    done = epochs_done(out)
    with subprocess.Popen(
        [sys.executable, "-m", "smoothcert", *command.split()],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},  # other sums have other roundings
        preexec_fn=listen_to_interrupts,
    ) as process:
        while epochs_done(out) == done:
            time.sleep(0.01)
        process.send_signal(number)
        said, _ = process.communicate()
    return said, process.returncode


def epochs_done(out):
    return len((out / "log.jsonl").read_text().splitlines()) if (out / "log.jsonl").exists() else 0


@pytest.mark.slow
def test_killed_and_interrupted_the_same_command_ends_with_the_same_weights(tmp_path):
    parts, epochs = tmp_path / "parts", 60
    assert stopped_by(signal.SIGKILL, parts, epochs) == ("", -signal.SIGKILL)
    said, code = stopped_by(signal.SIGINT, parts, epochs)
    assert (code, "run the same command to go on" in said) == (1, True)
    assert 0 < epochs_done(parts) < epochs
    for out in (parts, tmp_path / "whole"):
        train_digits(out, epochs=epochs)
    assert_same_tensors(tmp_path / "whole/last.safetensors", parts / "last.safetensors")


@pytest.mark.parametrize(("arch", "options"), [("digits_cnn", {}), ("liresnet", {**TINY, "width": 16})])
def test_the_weights_in_the_file_are_as_good_as_the_log_says(tmp_path, arch, options):
    log = train_digits(tmp_path, arch, epochs=10, batch=64, rate=0.1, options=options, validation=digits(train=False))
    model = load_model(arch, weights=tmp_path / "last.safetensors", device="cpu")
    assert log[-1].validation > 0.75
    assert accuracy(model, 0.25) == pytest.approx(log[-1].validation, abs=0.05)


def test_noise_in_training_helps_under_noise(tmp_path):
    plain, noisy = (
        train_digits(tmp_path / f"{sigma}", sigma=sigma, epochs=10, batch=64, rate=0.1) and tmp_path / f"{sigma}"
        for sigma in (0.0, 0.5)
    )
    under_noise = [accuracy(load_model("digits_cnn", weights=p / "last.safetensors"), 0.5) for p in (plain, noisy)]
    assert under_noise[1] > under_noise[0] + 0.05


@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_the_loss_is_that_of_the_scores_divided_by_the_temperature(tmp_path, temperature):
    plan = {"sigma": 0.0, "epochs": 1, "batch": 2000, "rate": 1e-12, "precision": "fp32"}
    (epoch,) = train_digits(tmp_path, temperature=temperature, **plan)
    model, data = load_model("digits_cnn", weights=tmp_path / "last.safetensors", device="cpu"), digits(train=True)
    scores = model(torch.stack([torch.from_numpy(data[row].array) for row in range(len(data))])).double().detach()
    shares = torch.softmax(scores / temperature, 1)[range(len(data)), [data[row].label for row in range(len(data))]]
    assert epoch.loss == pytest.approx(-float(shares.log().mean()), rel=1e-5)


@pytest.mark.parametrize("arch", SHIPPED_WEIGHTS)
def test_the_shipped_weights_were_trained_without_the_digits_that_are_held_out(arch):
    there = read_configuration(SHIPPED_WEIGHTS[arch])
    assert (there["arch"], there["sigma"], there["data"]) == (arch, 0.25, digits(train=True).fingerprint)
    assert there["data"] != digits(train=False).fingerprint


def test_the_files_carry_the_configuration_and_build_the_network(tmp_path):
    log = train_digits(tmp_path, "liresnet", options=TINY, epochs=2, seed=5, margin=0.5)
    there = read_configuration(tmp_path / "best.safetensors")
    assert there["arch"] == "liresnet"
    assert there["options"] == {**TINY, "num_classes": 10, "input_shape": [1, 8, 8]}
    assert (there["sigma"], there["epochs"], there["seed"], there["margin"]) == (0.25, 2, 5, 0.5)
    assert there["data"] == digits(train=True).fingerprint
    model = load_model("liresnet", weights=tmp_path / "best.safetensors", device="cpu")
    assert model(torch.rand(2, 1, 8, 8)).shape == (2, 10)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [epoch.loss for epoch in log]
    with pytest.raises(InputError, match="are those of liresnet, not of digits_cnn"):
        load_model("digits_cnn", weights=tmp_path / "best.safetensors")


def test_another_seed_gives_other_weights(tmp_path):
    for seed in (0, 1):
        train_digits(tmp_path / str(seed), epochs=1, seed=seed)
    first, second = (load_file(tmp_path / f"{seed}/last.safetensors") for seed in (0, 1))
    assert not torch.equal(first["0.weight"], second["0.weight"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sigma": 0.5}, r"holds a training with sigma 0\.25, not 0\.5: choose another `out`"),
        ({"epochs": 2}, "holds a training with epochs 1, not 2"),
        ({"seed": 1}, "holds a training with seed 0, not 1"),
    ],
)
def test_a_folder_of_another_training_is_refused_and_kept(tmp_path, changes, message):
    train_digits(tmp_path, epochs=1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=message):
        train_digits(tmp_path, **{"epochs": 1, **changes})
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arch": "digits_rnn"}, "There is no built-in model 'digits_rnn'"),
        ({"options": {"width": 8}}, "has no option 'width'"),
        ({"options": {"num_classes": 3}}, "has the label 9, and the network 3 classes: give it more"),
        ({"preset": "slow"}, "choose one of cohen, fast, adam"),
        ({"precision": "int8"}, "choose auto, bf16 or fp32"),
        ({"sigma": -1.0}, "0 for training without noise"),
        ({"sigma": float("nan")}, "0 for training without noise"),
        ({"epochs": 0}, "epochs is 0"),
        ({"rate": 0.0}, "rate is 0"),
        ({"temperature": 0.0}, "temperature is 0"),
        ({"seed": -1}, "the seed is -1"),
        ({"device": "abacus"}, "device 'abacus' cannot be used"),
    ],
)
def test_a_wrong_call_is_one_sentence(tmp_path, changes, message):
    with pytest.raises(InputError, match=message) as caught:
        train_digits(tmp_path, **changes)
    assert "\n" not in str(caught.value)


def test_inputs_that_the_network_does_not_take_are_refused(tmp_path):
    items = [(np.zeros((2, 8, 8), np.float32), 0)]
    with pytest.raises(InputError, match=r"digits_cnn does not take inputs of shape \(2, 8, 8\)"):
        train("digits_cnn", items, sigma=0.25, out=tmp_path)
    with pytest.raises(InputError, match=r"inputs have the shape \(64,\): switch off `augment`"):
        train("digits_lipschitz", [(np.zeros(64, np.float32), 0)], sigma=0.25, out=tmp_path)


def test_a_damaged_state_is_refused(tmp_path):
    train_digits(tmp_path, epochs=1)
    (tmp_path / "state.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(InputError, match="cannot be read"):
        train_digits(tmp_path, epochs=1)


def test_a_loss_that_overflows_stops_the_training(tmp_path):
    with pytest.raises(RunError, match="smaller `rate`"):
        train_digits(tmp_path, rate=1e12)
