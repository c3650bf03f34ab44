"""Almost orthogonal layers: no weights make them steeper than 1, and the first ones keep nearly all of an input."""

import pytest
import torch

from smoothcert import lipschitz, models
from smoothcert.models.almost_orthogonal import OrthogonalConv2d, OrthogonalLinear, OrthogonalPatches


def matrix_of(layer, shape):
    """The layer's linear part, a row for each entry of its input."""
    inputs = torch.eye(torch.Size(shape).numel(), dtype=torch.float64).reshape(-1, *shape)
    with torch.no_grad():
        return (layer(inputs) - layer(torch.zeros_like(inputs))).flatten(1)


@pytest.mark.parametrize("scale", [pytest.param(0.01, marks=pytest.mark.slow), 1.0, 30.0])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (OrthogonalConv2d(3, 6), (3, 5, 4)),
        (OrthogonalConv2d(4, 4), (4, 4, 4)),
        (OrthogonalPatches(3, 8, 2), (3, 4, 6)),
        (OrthogonalLinear(12, 5), (12,)),
    ],
)
def test_no_weights_make_a_layer_steeper_than_one(layer, shape, scale):
    torch.manual_seed(0)
    layer = layer.double()
    layer.weight.data = scale * torch.randn_like(layer.weight)
    norm = float(torch.linalg.matrix_norm(matrix_of(layer, shape), 2))
    bound = lipschitz.product(layer.eval(), shape)
    assert norm <= bound.value * (1 + 1e-12)
    assert norm <= 1 + 1e-12
    assert bound.basis == "proved"


def test_the_first_weights_keep_nearly_all_of_an_input():
    torch.manual_seed(0)
    assert torch.linalg.svdvals(matrix_of(OrthogonalConv2d(3, 8).double(), (3, 4, 4))).min() > 0.8
    assert torch.linalg.svdvals(matrix_of(OrthogonalConv2d(8, 8).double(), (8, 4, 4))).min() > 0.8


def test_an_orthogonal_liresnet_is_proved_to_be_flat_up_to_its_last_layer_whatever_its_weights():
    torch.manual_seed(0)
    shape = (2, 16, 8)
    model = models.build("liresnet", width=8, depth=2, dense=12, input_shape=shape, orthogonal=True).double()
    for parameter in model.parameters():
        parameter.data = 3 * torch.randn_like(parameter)
    bound = lipschitz.product(model.eval(), shape, inside=True)
    assert bound.last is not None
    assert bound.last.before <= 1 + 1e-9
    assert bound.value == model.lipschitz_bound()
    x, step = torch.randn(200, *shape).double(), 0.1 * torch.randn(200, *shape).double()
    with torch.no_grad():
        assert ((model(x + step) - model(x)).norm(dim=1) <= bound.value * step.flatten(1).norm(dim=1)).all()
