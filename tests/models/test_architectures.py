"""The built-in networks: parameter names, sizes and what they compute, against independent descriptions."""

import pytest
import torch
from torch.nn import functional as F

from smoothcert import models
from smoothcert.errors import InputError

BATCH_NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def listing(convolutions):
    """The keys of convolutions without bias, each with its batch normalisation, and of fc."""
    keys = {"fc.weight", "fc.bias"}
    for name in convolutions:
        norm = name.replace("downsample.0", "downsample.1").replace("conv", "bn")
        keys |= {f"{name}.weight", *(f"{norm}.{entry}" for entry in BATCH_NORM)}
    return {f"1.{key}" for key in keys}


def cifar_convolutions(depth):
    """In `locuslab/smoothing` the second and third stage begin with a projection."""
    yield "conv1"
    for stage in (1, 2, 3):
        for block in range((depth - 2) // 6):
            yield from (f"layer{stage}.{block}.conv{k}" for k in (1, 2))
    yield from ("layer2.0.downsample.0", "layer3.0.downsample.0")


def resnet50_convolutions():
    yield "conv1"
    for stage, count in ((1, 3), (2, 4), (3, 6), (4, 3)):
        yield f"layer{stage}.0.downsample.0"
        for block in range(count):
            yield from (f"layer{stage}.{block}.conv{k}" for k in (1, 2, 3))


def shaken(model, seed=0):
    """The model in evaluation mode with batch statistics that are not the identity."""
    torch.manual_seed(seed)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for tensor in (module.weight.data, module.running_var):
                tensor.uniform_(0.5, 1.5)
            for tensor in (module.bias.data, module.running_mean):
                tensor.normal_(0, 0.1)
    return model.eval()


class Reference:
    """A residual network computed from nothing but its weights by name."""

    def __init__(self, model, mean, std):
        self.w = {key.removeprefix("1."): value for key, value in model.state_dict().items()}
        self.mean, self.std = (torch.tensor(v).reshape(3, 1, 1) for v in (mean, std))

    def unit(self, x, conv, norm, stride=1):
        kernel = self.w[f"{conv}.weight"]
        x = F.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)
        weight, bias, mean, var = (self.w[f"{norm}.{entry}"][:, None, None] for entry in BATCH_NORM[:4])
        return (x - mean) / (var + 1e-5).sqrt() * weight + bias

    def block(self, x, name, strides):
        """Convolutions in a row with their strides, added to the input or its projection."""
        shortcut = x
        if f"{name}.downsample.0.weight" in self.w:
            shortcut = self.unit(x, f"{name}.downsample.0", f"{name}.downsample.1", max(strides))
        for k, stride in enumerate(strides, start=1):
            x = self.unit(x, f"{name}.conv{k}", f"{name}.bn{k}", stride)
            x = F.relu(x if k < len(strides) else x + shortcut)
        return x

    def stem(self, x, stride):
        return F.relu(self.unit((x - self.mean) / self.std, "conv1", "bn1", stride))

    def head(self, x):
        return x.mean((2, 3)) @ self.w["fc.weight"].T + self.w["fc.bias"]


@pytest.mark.parametrize("depth", [20, 32, 44, 56, 110, 8])
def test_cifar_resnets_have_cohens_parameter_names(depth):
    model = models.build(f"cifar_resnet{depth}")
    assert set(model.state_dict()) == listing(cifar_convolutions(depth))


def test_resnet50_has_torchvisions_parameter_names():
    assert set(models.build("resnet50").state_dict()) == listing(resnet50_convolutions())


@pytest.mark.parametrize(
    ("name", "count"),
    [
        # He et al. count 0.27 and 1.7 million with parameter-free shortcuts; the two projections add 2 752.
        ("cifar_resnet20", 269_722 + 2_752),
        ("cifar_resnet110", 1_727_962 + 2_752),
        ("resnet50", 25_557_032),
    ],
)
def test_the_number_of_parameters_is_the_published_one(name, count):
    assert sum(p.numel() for p in models.build(name).parameters()) == count


def test_cifar_resnet_computes_what_its_weights_say():
    model = shaken(models.build("cifar_resnet20"))
    x = torch.rand(2, 3, 32, 32)
    reference = Reference(model, (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    y = reference.stem(x, stride=1)
    for stage in (1, 2, 3):
        for block in range(3):
            y = reference.block(y, f"layer{stage}.{block}", (2 if stage > 1 and block == 0 else 1, 1))
    with torch.no_grad():
        torch.testing.assert_close(model(x), reference.head(y), rtol=1e-4, atol=1e-4)


def test_resnet50_computes_what_its_weights_say():
    model = shaken(models.build("resnet50"))
    x = torch.rand(1, 3, 64, 64)
    reference = Reference(model, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    y = F.max_pool2d(reference.stem(x, stride=2), 3, 2, 1)
    for stage, count in ((1, 3), (2, 4), (3, 6), (4, 3)):
        for block in range(count):
            y = reference.block(y, f"layer{stage}.{block}", (1, 2 if stage > 1 and block == 0 else 1, 1))
    with torch.no_grad():
        scores, expected = model(x), reference.head(y)
    assert scores.shape == (1, 1000)
    torch.testing.assert_close(scores, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


def test_convolutions_start_with_he_variance():
    torch.manual_seed(0)
    weight = models.build("cifar_resnet20").state_dict()["1.layer3.1.conv1.weight"]
    assert float(weight.std()) == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.02)


def test_normalisation_moves_with_the_model_and_is_no_weight():
    model = models.build("cifar_resnet20", num_classes=7, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)).eval()
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert model(x).shape == (2, 7)
        torch.testing.assert_close(model(x), model[1](4 * x - 2), rtol=1e-4, atol=1e-4)
        assert model.double()(x.double()).dtype == torch.float64
    assert not any(key.startswith("0.") for key in model.state_dict())


def test_digits_cnn_scores_batches_of_digits():
    model = models.build("digits_cnn")
    assert model(torch.rand(5, 1, 8, 8)).shape == (5, 10)
    assert models.build("digits_cnn", num_classes=3)(torch.rand(5, 1, 8, 8)).shape == (5, 3)


def test_every_listed_name_can_be_built():
    assert set(models.names()) >= {"cifar_resnet20", "cifar_resnet110", "resnet50", "digits_cnn"}
    for name in models.names():
        assert isinstance(models.build(name), torch.nn.Module)


@pytest.mark.parametrize("name", ["resnet51", "", "cifar_resnet", "cifar_resnet20x"])
def test_other_names_are_refused_with_the_list(name):
    with pytest.raises(InputError, match=r"use one of cifar_resnet20, .*resnet50, digits_cnn"):
        models.build(name)


@pytest.mark.parametrize("depth", [2, 19, 100])
def test_other_depths_are_refused(depth):
    with pytest.raises(InputError, match=f"depth 6k \\+ 2 .* not {depth}"):
        models.build(f"cifar_resnet{depth}")


def test_random_weights_are_warned_of_by_the_log_alone(caplog, capsys):
    for name in ("cifar_small", "digits_cnn"):  # the digits' weights come with the package
        models.load_model(name, device="cpu")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "cifar_small has random weights: none were given.")
    ]
    assert capsys.readouterr() == ("", "")
