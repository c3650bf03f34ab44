"""Local estimates: exact on linear maps, from below everywhere, and inside the ball."""

import math
from itertools import pairwise

import pytest
import torch
from scipy import stats
from torch import nn

from smoothcert.errors import InputError
from smoothcert.lipschitz import local, product

torch.set_num_threads(1)


class Map(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def network(seed, activation=nn.ReLU, sizes=(12, 32, 32, 4)):
    torch.manual_seed(seed)
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), activation())]
    return nn.Sequential(*layers[:-1])


def test_a_linear_map_is_measured_exactly():
    layer = network(0, sizes=(12, 4))[0].double()
    x = torch.randn(5, 12, dtype=torch.float64)
    weight, scores = layer.weight.detach(), layer(x).detach()
    top, second = scores.topk(2, 1).indices.T
    wants = {
        "logits": torch.linalg.matrix_norm(weight, 2).expand(5),
        "class": weight[top].norm(dim=1),
        "margin": (weight[top] - weight[second]).norm(dim=1),
    }
    for of, want in wants.items():
        # the rival of the margin may change within a larger ball
        torch.testing.assert_close(local(layer, x, 1e-6, of=of, steps=40), want, rtol=1e-6, atol=0)
        smoothed = local(layer, x, 1e-6, of=of, steps=40, sigma=1e-6)
        torch.testing.assert_close(smoothed, want, rtol=1e-6, atol=0)
    chosen = torch.tensor([0, 1, 2, 3, 0])
    torch.testing.assert_close(local(layer, x, of="class", classes=chosen), weight[chosen].norm(dim=1))


def test_the_linear_network_of_the_appendix():
    layers = [nn.Linear(100, 100) for _ in range(109)] + [nn.Linear(100, 10)]
    torch.manual_seed(0)
    for layer in layers:
        nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5))
    assert float(local(nn.Sequential(*layers), torch.zeros(1, 100))) == pytest.approx(8.5e-27, rel=1e-2)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.GELU])
def test_it_lies_between_the_gradient_at_the_centre_and_the_product(activation):
    net = network(1, activation)
    bound = product(net, (12,)).value
    x = torch.randn(6, 12)
    jacobians = torch.stack([torch.autograd.functional.jacobian(net, v) for v in x])
    estimate = local(net, x, 0.5)
    assert torch.all(estimate >= torch.linalg.matrix_norm(jacobians, 2) * 0.98)
    assert torch.all(estimate <= bound)
    for of, factor in [("class", 1), ("margin", math.sqrt(2))]:
        assert torch.all(local(net, x, 0.5, of=of) <= factor * bound)


def test_a_larger_ball_is_at_least_as_steep_and_ascent_beats_the_centre():
    net = network(2, nn.Tanh).double()
    x = torch.randn(6, 12, dtype=torch.float64)
    at_x, near, far = (local(net, x, radius, of="class", classes=torch.zeros(6, dtype=int)) for radius in (0, 0.5, 2.0))
    v = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(net(v)[:, 0].sum(), v)
    torch.testing.assert_close(at_x, gradient.norm(dim=1))
    assert torch.all(near > at_x)
    assert torch.all(far > near)


def test_it_finds_the_steepest_point_of_a_quadratic():
    """`½ xᵀAx` has the gradient Ax: along the top eigenvector its largest norm is λ(‖x‖ + r), at the far edge."""
    torch.manual_seed(3)
    values, basis = torch.linspace(0.1, 2, 8, dtype=torch.float64), torch.linalg.qr(torch.randn(8, 8).double())[0]
    matrix = basis * values @ basis.T
    x = 0.7 * basis[:, -1][None]
    estimate = float(local(Map(lambda v: 0.5 * (v @ matrix * v).sum(1, keepdim=True)), x, 0.4))
    assert 0.98 * 2 * 1.1 <= estimate <= 2 * 1.1 * (1 + 1e-9)


def test_it_stays_inside_the_ball():
    """Steep only beyond x₁ = 1: the ball of radius 0.15 around 0 does not see it, the ball of radius 2 does."""
    cliff = Map(lambda v: v[:, :1] + 100 * torch.relu(v[:, :1] - 1))
    x = torch.zeros(3, 2)
    assert local(cliff, x).tolist() == [1.0, 1.0, 1.0]
    assert local(cliff, x, 2.0, restarts=10).max() == pytest.approx(101)


def test_a_steep_step_is_flat_once_smoothed():
    """A step, smoothed, has the slope φ(x/σ)/σ; the network itself has 1000."""
    step = Map(lambda v: torch.cat([torch.sigmoid(4000 * v[:, :1]), 1 - torch.sigmoid(4000 * v[:, :1])], 1))
    x, sigma = torch.zeros(1, 3, dtype=torch.float64), 0.5
    steepest = stats.norm.pdf(0) / sigma
    assert float(local(step, x, 1e-9, of="class")) == pytest.approx(1000, rel=1e-3)
    smooth = Map(lambda v: torch.sigmoid(8 * v[:, :1]))
    truth = integral_slope(8.0, sigma)
    values = [
        float(local(smooth, x, 0.1, of="class", sigma=sigma, draws=2000, steps=5, restarts=1, seed=s)) for s in range(8)
    ]
    mean = sum(values) / len(values)
    assert truth < steepest
    assert mean == pytest.approx(truth, rel=0.06)
    assert float(local(smooth, x, 0.1, of="class")) == pytest.approx(2, rel=1e-3)


def integral_slope(rate, sigma):
    """The derivative at 0 of a logistic function smoothed by N(0, σ²), by the trapezoidal rule."""
    v = torch.linspace(-10 * sigma, 10 * sigma, 20001, dtype=torch.float64)
    s = torch.sigmoid(rate * v)
    weights = torch.exp(-((v / sigma) ** 2) / 2)
    return float((rate * s * (1 - s) * weights).sum() / weights.sum())


def test_few_draws_do_not_inflate_the_smoothed_constant():
    """On pure noise, the norm of an averaged gradient would be large; the slope judged by other draws is not."""
    wild = Map(lambda v: torch.sin(50 * v).sum(1, keepdim=True))  # smoothed by σ = 1 it is constant
    x = torch.zeros(4, 10, dtype=torch.float64)
    values = torch.cat([local(wild, x, sigma=1.0, draws=16, steps=3, seed=seed) for seed in range(20)])
    inflated = 50 * math.sqrt(10 / 2 / 8)  # the norm of a mean of 8 independent gradients
    assert values.mean() < 0.6 * inflated


def test_one_value_for_each_input_whatever_the_batches():
    net = network(4)
    x = torch.randn(7, 12)
    whole, parts = local(net, x, 0.0), local(net, x, 0.0, batch_size=1)
    assert whole.shape == (7,)
    assert whole.dtype == torch.float64
    torch.testing.assert_close(whole, parts, rtol=2e-2, atol=0)
    assert torch.equal(local(net, x, seed=5), local(net, x, seed=5))
    assert local(net, x[:0]).shape == (0,)


def test_the_module_is_left_as_it_was():
    net = nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4)).eval()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    x = torch.randn(3, 12)
    original = x.clone()
    with torch.no_grad():
        local(net, x)
    assert all(parameter.grad is None for parameter in net.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert torch.equal(x, original)
    assert not x.requires_grad


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda net, x: local(net, x, of="all"), "not 'all'"),
        (lambda net, x: local(net, x[0]), "batch of finite inputs"),
        (lambda net, x: local(net, x.long()), "batch of finite inputs"),
        (lambda net, x: local(net, x * math.nan), "batch of finite inputs"),
        (lambda net, x: local(net, x, -1.0), "must not be negative"),
        (lambda net, x: local(net, x, math.nan), "must not be negative"),
        (lambda net, x: local(net, x, sigma=-1.0), "must not be negative"),
        (lambda net, x: local(net, x, draws=1), "at least 2"),
        (lambda net, x: local(net, x[:, :5]), r"shape \(5,\) do not fit"),
        (lambda net, x: local(Map(lambda v: v.sum(1)), x), "one vector of scores"),
        (lambda net, x: local(Map(lambda v: v[:, :1]), x, of="margin"), "at least two scores"),
        (lambda net, x: local(net, x, of="class", classes=torch.tensor([4, 0])), "one class below 4"),
        (lambda net, x: local(net, x, of="class", classes=torch.tensor([0])), "one class below 4"),
        (lambda net, x: local(nn.Sequential(net, nn.BatchNorm1d(4)), x), "is in training mode"),
    ],
)
def test_bad_input_is_one_sentence(call, says):
    with pytest.raises(InputError, match=says) as error:
        call(network(6), torch.randn(2, 12))
    assert "\n" not in str(error.value)
