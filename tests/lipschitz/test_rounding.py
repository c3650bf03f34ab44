"""What float64 rounds, beside an evaluation with 400 bits."""

import mpmath
import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.lipschitz import GroupSort, register
from smoothcert.lipschitz.exact import Frozen, exact_copy
from smoothcert.models.digits_lipschitz import AlmostOrthogonal
from smoothcert.models.liresnet import MinMax
from some import some


class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x - 3 * self.layers(x)


class Shifted(nn.Module):
    """A large number that is added and taken away again."""

    def __init__(self, power):
        super().__init__()
        self.by = nn.Parameter(torch.tensor(1.5 * 2.0**power))

    def forward(self, x):
        return (x + self.by) - self.by


class Maxout(nn.Module):
    def forward(self, x):
        pairs = x.unflatten(1, (-1, 2))
        return torch.cat([pairs.amax(2), pairs[..., 0].clamp(max=0.25)], 1)


class Closed(nn.Module):
    """Answers for itself, and a quotient of signals has no rule."""

    def forward(self, x):
        return x / (1 + x.abs())

    def lipschitz_bound(self):
        return 1.0


def real(values):
    return np.array([mpmath.mpf(float(v)) for v in np.ravel(values)], dtype=object).reshape(np.shape(values))


def each(function, x):
    return np.array([function(v) for v in x.flat], dtype=object).reshape(x.shape)


def linear(layer, x):
    """By its matrix, whose entries are weights, or powers of 2."""
    with torch.no_grad():
        inputs = torch.eye(x.size, dtype=torch.float64).reshape(-1, *x.shape)
        zero = layer(torch.zeros_like(inputs[:1]))
        bias = getattr(layer, "bias", None)
        if bias is not None:
            layer.bias = None
        matrix = layer(inputs).flatten(1).numpy().T
        if bias is not None:
            layer.bias = bias
    found = (real(matrix) @ x.ravel()).reshape(zero.shape[1:])
    return found if bias is None else found + real(bias.detach().numpy()).reshape(-1, *(1 for _ in found.shape[1:]))


def batch_norm(layer, x):
    mean, variance, weight, bias = (
        real(t.detach().numpy()).reshape(-1, *(1 for _ in x.shape[1:]))
        for t in (layer.running_mean, layer.running_var, layer.weight, layer.bias)
    )
    return (x - mean) / each(mpmath.sqrt, variance + mpmath.mpf(layer.eps)) * weight + bias


def almost_orthogonal(layer, x):
    """Its constants are those that are computed."""
    rows = (layer.weight * layer._scale()).detach().numpy()
    return real(rows) @ x + real(layer.bias.detach().numpy())


def maxout(layer, x):
    pairs = x.reshape(-1, 2)
    return np.concatenate([pairs.max(axis=1), np.minimum(pairs[:, 0], mpmath.mpf(0.25))])


def pooled(layer, x):
    c, h, w = x.shape
    return x.reshape(c, h // 2, 2, w // 2, 2).max(axis=(2, 4))


def minmax(layer, x):
    a, b = np.split(x, 2)
    return np.concatenate([np.minimum(a, b), np.maximum(a, b)])


EXACT = {
    nn.Flatten: lambda layer, x: x.ravel(),
    nn.Linear: linear,
    nn.Conv2d: linear,
    nn.ConvTranspose2d: linear,
    nn.AvgPool2d: linear,
    nn.BatchNorm2d: batch_norm,
    nn.BatchNorm1d: batch_norm,
    nn.MaxPool2d: pooled,
    nn.ReLU: lambda layer, x: np.maximum(x, 0),
    nn.Tanh: lambda layer, x: each(mpmath.tanh, x),
    nn.CELU: lambda layer, x: each(lambda v: v if v > 0 else layer.alpha * mpmath.expm1(v / layer.alpha), x),
    nn.GELU: lambda layer, x: each(mpmath.ncdf, x) * x,
    nn.LogSoftmax: lambda layer, x: x - mpmath.log(sum(map(mpmath.exp, x))),
    nn.Sequential: lambda layer, x: evaluated(layer, x),
    Residual: lambda layer, x: x - 3 * evaluated(layer.layers, x),
    Shifted: lambda layer, x: x,
    Maxout: maxout,
    GroupSort: lambda layer, x: np.sort(x.reshape(-1, 2), axis=1).ravel(),
    MinMax: minmax,
    AlmostOrthogonal: almost_orthogonal,
    Closed: lambda layer, x: x / (1 + abs(x)),
}


def evaluated(network, x):
    for layer in network:
        x = EXACT[type(layer)](layer, x)
    return x


def cancelling(power):
    """Biases that are large, and taken away again by the layer behind them."""
    first, second = nn.Linear(32, 8), nn.Linear(8, 8)
    with torch.no_grad():
        first.bias.fill_(2.0**power)
        second.bias.fill_(-(2.0**power))
        second.weight.copy_(torch.eye(8))
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.ReLU(), nn.Linear(8, 3))


def normed(features, mean, kind=nn.BatchNorm2d):
    layer = kind(features)
    with torch.no_grad():
        layer.running_mean.normal_(mean, 1)
        layer.running_var.uniform_(0.1, 3)
        layer.weight.normal_()
        layer.bias.copy_(layer.running_mean * layer.weight / (layer.running_var + layer.eps).sqrt())
    return layer


NETWORKS = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(32, 3)),
    "deep": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(32, 20), nn.ReLU(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 3)
    ),
    "convolutions": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, stride=2), nn.Flatten(), nn.Linear(2, 3)
    ),
    "paddings": lambda: nn.Sequential(
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"),
        nn.ConvTranspose2d(2, 2, 2, stride=2),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular", bias=False),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 3),
    ),
    "residual": lambda: nn.Sequential(
        nn.Flatten(), Residual(nn.Linear(32, 32), nn.ReLU()), Residual(nn.Linear(32, 32)), nn.Linear(32, 3)
    ),
    "cancelling": lambda: cancelling(40),
    "batch norm": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3), normed(4, 0), nn.ReLU(), nn.Flatten(), normed(16, 0, nn.BatchNorm1d), nn.Linear(16, 3)
    ),
    "far mean": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3), normed(4, 2.0**40), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    ),
    "pooling": lambda: nn.Sequential(
        nn.AvgPool2d(2), nn.Conv2d(2, 4, 1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 3)
    ),
    "maxout": lambda: nn.Sequential(nn.Flatten(), nn.Linear(32, 16), Shifted(50), Maxout(), nn.Linear(16, 3)),
    "functions": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(32, 8), nn.CELU(2.0**30), nn.GELU(), nn.Linear(8, 3), nn.LogSoftmax(1)
    ),
    "designs": lambda: nn.Sequential(
        MinMax(), nn.Flatten(), AlmostOrthogonal(32, 16), GroupSort(), Shifted(10), AlmostOrthogonal(16, 3)
    ),
    "closed": lambda: nn.Sequential(nn.Flatten(), nn.Linear(32, 16), Closed(), nn.Linear(16, 3)),
}
SHAPE = (2, 4, 4)


def made(name, seed=0):
    torch.manual_seed(seed)
    twin = exact_copy(NETWORKS[name]().double().eval(), SHAPE)
    return twin, Frozen.of(twin, SHAPE)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", some(NETWORKS))
def test_every_computed_score_of_a_ball_is_as_near_to_the_exact_one_as_was_said(name, seed):
    twin, frozen = made(name, seed)
    chance = torch.Generator().manual_seed(seed)
    for size in (0.0, 1.0, 1e6):
        x = size * torch.randn(SHAPE, generator=chance, dtype=torch.float64)
        away = torch.randn(8, *SHAPE, generator=chance, dtype=torch.float64)
        away *= torch.logspace(-9, 3, 8, dtype=torch.float64).reshape(-1, 1, 1, 1)
        with torch.no_grad():
            allowed, found = frozen.rounding.at(x), frozen(x + away).numpy()
        for y, scores in zip(x + away, found, strict=True):
            with mpmath.workprec(400):
                off = real(scores) - evaluated(twin, real(y.numpy()))
                off = float(mpmath.sqrt(sum(v * v for v in off)))
            assert off <= allowed + frozen.rounding.growth * float((y - x).norm())


@pytest.mark.parametrize(
    "name", [name for name in NETWORKS if name not in ("cancelling", "far mean", "maxout", "functions")]
)
def test_it_is_small_beside_the_scores_of_a_network_where_nothing_cancels(name):
    _, frozen = made(name)
    x = torch.randn(SHAPE, dtype=torch.float64)
    with torch.no_grad():
        assert 0 < frozen.rounding.at(x) < 1e-7


@pytest.mark.parametrize("power", [20, 30, 40, 50])
def test_it_grows_with_what_is_added_and_taken_away_again(power):
    """The steps of what is computed are of `2^(power − 52)`."""
    torch.manual_seed(0)
    network = nn.Sequential(Shifted(power), nn.Linear(2, 2))
    rounding = Frozen.of(exact_copy(network.double().eval(), (2,)), (2,)).rounding
    with torch.no_grad():
        allowed = rounding.at(torch.zeros(2, dtype=torch.float64))
    assert 2.0 ** (power - 52) < allowed < 2.0 ** (power - 40)


def test_layers_that_are_folded_together_have_the_bound_of_both():
    """Each convolution is steep where the batch normalisation behind it is flat: apart, their product is 10⁴ a pair."""
    layers = []
    for _ in range(8):
        layers += [nn.Conv2d(2, 2, 1, bias=False), nn.BatchNorm2d(2, eps=0.0), nn.ReLU()]
        with torch.no_grad():
            layers[-3].weight.copy_(torch.diag(torch.tensor([1e2, 1e-2]))[..., None, None])
            layers[-2].weight.copy_(torch.tensor([1e-2, 1e2]))
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(32, 3)).double().eval()
    with torch.no_grad():
        assert Frozen.of(exact_copy(network, SHAPE), SHAPE).rounding.at(torch.ones(SHAPE, dtype=torch.float64)) < 1e-7


class Biased(nn.Module):
    """Constants that cancel are added to a signal inside of one operation."""

    def __init__(self):
        super().__init__()
        self.ones = nn.Parameter(torch.ones(1, 2))
        self.rows = nn.Parameter(torch.tensor([[2.0**60, -(2.0**60)]]))

    def forward(self, x):
        return torch.addmm(x, self.ones.expand(len(x), 2), self.rows.T.expand(2, 2))


class Put(nn.Module):
    def __init__(self):
        super().__init__()
        self.large = nn.Parameter(torch.tensor([2.0**60, -(2.0**60)]))

    def forward(self, x):
        y = x.T.clone()
        zero = torch.zeros(2, dtype=torch.long)
        return y.index_put((zero,), self.large[:, None], accumulate=True).T


class Powers(nn.Module):
    """The 100th power of a small number is 0."""

    def __init__(self):
        super().__init__()
        self.one = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return torch.linalg.vector_norm(x, 100, dim=1, keepdim=True) * self.one


@pytest.mark.parametrize("kind", [Biased, Put, Powers])
def test_what_hides_inside_an_operation_has_no_bound(kind):
    rounding = Frozen.of(exact_copy(kind().double().eval(), (2,)), (2,)).rounding
    with torch.no_grad():
        assert rounding.at(torch.ones(2, dtype=torch.float64)) == np.inf


def test_values_that_could_overflow_have_no_bound():
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).double().eval()
    rounding = Frozen.of(exact_copy(network, (2,)), (2,)).rounding
    with torch.no_grad():
        assert rounding.at(torch.full((2,), 1e90, dtype=torch.float64)) < np.inf
        assert rounding.at(torch.full((2,), 1e101, dtype=torch.float64)) == np.inf
        assert rounding.at(torch.full((2,), np.nan, dtype=torch.float64)) == np.inf


class Whole(nn.Module):
    """Answers for itself, and nobody can look inside."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        y = self.layer(x)
        return y / (1 + y.abs())

    def lipschitz_bound(self):
        return float(torch.linalg.matrix_norm(self.layer.weight.detach(), 2)) * (1 + 1e-9)


class Registered(Whole):
    pass


register(Registered)(lambda shape, module, x: module.lipschitz_bound())


@pytest.mark.parametrize("kind", [Whole, Registered])
def test_a_network_that_answers_for_itself_is_taken_at_its_word(kind):
    """A part of 2⁻³² of what goes in and comes out."""
    torch.manual_seed(0)
    twin, x = exact_copy(kind().double().eval(), (2,)), torch.ones(2, dtype=torch.float64)
    rounding = Frozen.of(twin, (2,)).rounding
    with torch.no_grad():
        ends = 2 * twin.lipschitz_bound() * float(x.norm()) + float(twin(x[None]).norm())
        assert rounding.at(x) == pytest.approx(4 * 2.0**-32 * ends, rel=1e-4)


class Single(nn.Module):
    """Answers for itself, and is one operation without a rule."""

    def forward(self, x):
        return torch.special.bessel_j0(x)

    def lipschitz_bound(self):
        return 1.0


def test_a_part_of_one_operation_is_taken_at_its_word():
    network = nn.Sequential(nn.Linear(2, 2), Single()).double().eval()
    x = torch.ones(2, dtype=torch.float64)
    with torch.no_grad():
        network[0].weight.copy_(2 * torch.eye(2))
        assert 2.0**-32 < Frozen.of(network, (2,)).rounding.at(x) < 2.0**-24


def test_what_does_nothing_rounds_next_to_nothing():
    class Same(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Parameter(torch.ones(1).double())

        def forward(self, x):
            return x

    with torch.no_grad():
        assert Frozen.of(Same().eval(), (2,)).rounding.at(torch.ones(2, dtype=torch.float64)) < 1e-12
