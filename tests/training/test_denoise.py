"""A denoiser makes a classifier that never saw noise stand it, and changes nothing of it."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import smoothcert as sc
from smoothcert.data import digits
from smoothcert.errors import InputError
from smoothcert.models.denoiser import Denoiser
from smoothcert.sampling.engines import Engines
from smoothcert.training import train, train_denoiser


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A network for digits that was trained without noise."""
    out = tmp_path_factory.mktemp("plain")
    plan = {"sigma": 0.0, "epochs": 15, "batch": 64, "rate": 0.1, "augment": False, "device": "cpu"}
    train("digits_cnn", "digits", out=out, **plan)
    return sc.models.load_model("digits_cnn", weights=out / "last.safetensors", device="cpu").eval()


def denoise(model, out, data=None, **changes):
    plan = {"sigma": 0.5, "augment": False, **changes}
    return train_denoiser(model, digits(train=True) if data is None else data, out=out, **plan)


@pytest.fixture(scope="module")
def denoiser(plain, tmp_path_factory):
    out = tmp_path_factory.mktemp("denoiser")
    log = denoise(plain, out, validation=digits(train=False), epochs=10, batch=64)
    return out / "last.safetensors", log


def images(data):
    x = torch.from_numpy(np.stack([data[row].array for row in range(len(data))]))
    return x, torch.tensor([data[row].label for row in range(len(data))])


def accuracy(model, sigma=0.5):
    x, y = images(digits(train=False))
    noise = sigma * torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        return float((model(x + noise).argmax(1) == y).float().mean())


def test_the_classifier_stands_noise_behind_it(plain, denoiser):
    assert accuracy(plain, 0.0) > 0.9
    assert accuracy(sc.models.denoised(plain, denoiser[0])) > accuracy(plain) + 0.03


def test_the_log_says_how_often_the_answer_is_that_to_the_picture_itself(plain, denoiser):
    model, (x, _) = sc.models.denoised(plain, denoiser[0]), images(digits(train=False))
    noise = 0.5 * torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        agree = float((model(x + noise).argmax(1) == plain(x).argmax(1)).float().mean())
    assert denoiser[1][-1].validation == pytest.approx(agree, abs=0.08)


def test_labels_play_no_part_and_the_classifier_stays_as_it_was(plain, tmp_path):
    plain.train()
    before = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    x, _ = images(digits(train=True))
    denoise(plain, tmp_path / "labelled", [(image, label % 7) for label, image in enumerate(x)], epochs=1)
    denoise(plain, tmp_path / "bare", list(x), epochs=1)
    first, second = (load_file(tmp_path / name / "last.safetensors") for name in ("labelled", "bare"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert plain.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in plain.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in plain.eval().state_dict().items())


def test_it_resumes_to_the_bit_and_knows_its_classifier(plain, tmp_path):
    def stop(images, done):
        if done > 0.6:
            raise KeyboardInterrupt

    denoise(plain, tmp_path / "whole", epochs=2)
    with pytest.raises(KeyboardInterrupt):
        denoise(plain, tmp_path / "parts", epochs=2, on_progress=stop)
    denoise(plain, tmp_path / "parts", epochs=2)
    first, second = (load_file(tmp_path / name / "last.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    with pytest.raises(InputError, match="holds a training with objective"):
        denoise(sc.models.load_model("digits_cnn", device="cpu"), tmp_path / "whole", epochs=2)


@pytest.mark.parametrize("engine", ["torch", "torch+folded", "onnx"])
def test_it_runs_in_every_engine(plain, denoiser, engine):
    model = sc.models.denoised(plain, denoiser[0])
    x = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    ran = Engines(model).open(engine)
    with ran.ready(), torch.no_grad():
        torch.testing.assert_close(ran(x), model(x), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", [(8, 8), (7, 9), (1, 1), (33, 32)])
def test_images_of_any_size_keep_it(size):
    x = torch.rand(2, 3, *size)
    assert Denoiser(3).eval()(x).shape == x.shape


def test_a_range_has_noise_of_its_own_for_each_image(plain, tmp_path):
    log = denoise(plain, tmp_path, epochs=1, least_sigma=0.1)
    narrow = denoise(plain, tmp_path / "narrow", epochs=1)
    assert log[0].accuracy > narrow[0].accuracy  # most of its noise is weaker


def test_what_is_no_denoiser_is_refused(plain, denoiser, tmp_path):
    save_file({"layers.1.weight": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="holds no denoiser"):
        sc.models.denoised(plain, tmp_path / "other.safetensors")
    about = {"configuration": '{"arch": "denoiser", "options": {"channels": 1000000}}'}
    save_file(load_file(denoiser[0]), tmp_path / "wide.safetensors", about)
    with pytest.raises(InputError, match="holds no denoiser"):
        sc.models.denoised(plain, tmp_path / "wide.safetensors")
    with pytest.raises(InputError, match="in front of a torch module"):
        sc.models.denoised(lambda batch: batch.argmax(1), denoiser[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sigma": 0.0}, "sigma must be a positive number"),
        ({"precision": "int8"}, "choose auto, bf16 or fp32"),
        ({"seed": -1}, "the seed is -1"),
        ({"workers": -1}, "workers must be a whole number of at least 0"),
        ({"least_sigma": 0.5}, "between 0 and `sigma`"),
        ({"data": [np.zeros(64, np.float32)]}, "a denoiser is for images"),
        ({"model": nn.Identity()}, "returns no scores"),
    ],
)
def test_a_wrong_call_is_one_sentence(plain, tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        denoise(**{"model": plain, "out": tmp_path, **changes})
