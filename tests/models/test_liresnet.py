"""LiResNet: its bound is one, for the layers alone and for the whole network, and it is not far off."""

import pytest
import torch
from torch import nn

from smoothcert import lipschitz, models
from smoothcert.errors import InputError
from smoothcert.models.liresnet import MinMax, NormalizedLinear, ResidualConv2d


def network(seed, scale=1.0, **options):
    """A small LiResNet with weights away from their first values, in float64."""
    torch.manual_seed(seed)
    model = models.build("liresnet", **{"width": 8, "depth": 2, "dense": 12, "input_shape": (2, 16, 8), **options})
    for parameter in model.parameters():
        parameter.data += scale * 0.1 * torch.randn_like(parameter)
    return model.double().eval()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_no_slope_and_no_pair_of_inputs_exceeds_the_bound(seed, scale):
    model = network(seed, scale)
    bound = model.lipschitz_bound()
    for _ in range(5):
        x = 2 * torch.randn(2, 16, 8, dtype=torch.float64)
        jacobian = torch.autograd.functional.jacobian(lambda z: model(z[None])[0], x).flatten(1)
        assert float(torch.linalg.matrix_norm(jacobian, 2)) <= bound
    x = torch.randn(500, 2, 16, 8, dtype=torch.float64)
    y = x + 10 ** torch.empty(500, 1, 1, 1).uniform_(-3, 1).double() * torch.randn_like(x)
    with torch.no_grad():
        ratios = (model(x) - model(y)).norm(dim=1) / (x - y).flatten(1).norm(dim=1)
    assert float(ratios.max()) <= bound


@pytest.mark.parametrize("size", [1, 2, 5, 8])
@pytest.mark.parametrize("scale", [0.05, 0.5])
def test_the_norm_of_a_residual_block_is_that_of_its_matrix(size, scale):
    torch.manual_seed(0)
    block = ResidualConv2d(4).double().eval()
    block.weight.data.normal_(0, scale)
    inputs = torch.eye(4 * size * size, dtype=torch.float64).reshape(-1, 4, size, size)
    with torch.no_grad():
        linear = block(inputs) - block(torch.zeros_like(inputs))
        by_hand = inputs + nn.functional.conv2d(inputs, block.weight, padding=1)
    torch.testing.assert_close(linear, by_hand)
    exact = float(torch.linalg.matrix_norm(by_hand.flatten(1), 2))
    bound = lipschitz.product(block, (4, size, size)).value
    assert exact <= bound <= 1.1 * exact
    assert bound < 1 + float(torch.linalg.matrix_norm((by_hand - inputs).flatten(1), 2))


def test_minmax_sorts_pairs():
    x = torch.randn(3, 6, 2, 2, dtype=torch.float64)
    pairs = torch.stack(x.chunk(2, 1)).sort(0).values
    torch.testing.assert_close(MinMax()(x), torch.cat((*pairs,), 1))


def test_the_last_layer_has_the_margins_of_rows_of_length_one_and_no_more_slope_than_they():
    torch.manual_seed(0)
    layer, x = NormalizedLinear(5, 4), torch.randn(7, 5)
    layer.weight.data += 3  # rows that have much in common
    rows = (layer.weight / layer.weight.norm(dim=1, keepdim=True)).detach()
    plain = x @ rows.T + layer.bias
    scores = layer(x)
    torch.testing.assert_close(scores - scores[:, :1], plain - plain[:, :1])
    assert lipschitz.product(layer.eval(), (5,)).value < float(torch.linalg.matrix_norm(rows, 2))


def test_the_product_of_the_whole_is_its_own_bound_and_names_its_layers():
    model = network(0)
    layers = lipschitz.product(model.layers, (2, 16, 8))
    assert lipschitz.product(model, (2, 16, 8)).value == model.lipschitz_bound() == layers.value
    assert sum(layer.kind == "ResidualConv2d" for layer in layers.layers) == 2  # the residual blocks, one operator each


def test_width_depth_and_input_are_options():
    model = models.build("liresnet", num_classes=7, width=10, depth=3, dense=20, input_shape=(1, 8, 24))
    assert model(torch.rand(2, 1, 8, 24)).shape == (2, 7)
    assert sum(isinstance(m, ResidualConv2d) for m in model.modules()) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 7}, "are even"),
        ({"depth": 0}, "at least 1"),
        ({"input_shape": (3, 30, 32)}, "multiples of 8, not 30×32"),
        ({"height": 3}, "The model liresnet has no option 'height': use one of num_classes, width"),
    ],
)
def test_other_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        models.build("liresnet", **options)


def test_images_of_another_shape_are_refused():
    """Those of 20 × 12 fit the layers, too, which are steeper there than the bound."""
    model = network(0).float()
    with pytest.raises(AssertionError, match=r"takes images of shape \(2, 16, 8\)"):
        model(torch.zeros(1, 2, 20, 12))
    with pytest.raises(InputError, match=r"takes images of shape \(2, 16, 8\)"):
        lipschitz.product(model, (2, 20, 12))
