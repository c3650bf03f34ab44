"""Bounds of whole networks: against exact Jacobians, against closed forms, and what is refused."""

import math
from dataclasses import FrozenInstanceError

import mpmath as mp
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from smoothcert.errors import InputError, RunError
from smoothcert.lipschitz import GroupSort, Join, Signal, product, register, rules
from smoothcert.lipschitz.spectral import Convolution, fourier
from some import some

torch.set_num_threads(1)


class Net(nn.Module):
    """A module whose forward is the given function of itself and the input."""

    def __init__(self, run, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.run = run

    def forward(self, x):
        return self.run(self, x)


def jacobian_norm(module, x):
    """The norm of the Jacobian at one input: no bound may be below it."""
    module = module.double()
    columns = torch.autograd.functional.jacobian(lambda v: module(v[None])[0], x.double(), vectorize=True)
    return float(torch.linalg.matrix_norm(columns.reshape(-1, x.numel()), 2))


def norm(layer):
    return float(torch.linalg.matrix_norm(layer.weight.detach().double(), 2))


# The appendix of the paper.


def test_the_linear_network_of_the_appendix():
    layers = [nn.Linear(100, 100) for _ in range(109)] + [nn.Linear(100, 10)]
    torch.manual_seed(0)
    for layer in layers:
        nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5))
    network = nn.Sequential(*layers)
    bound = product(network, (100,))
    assert bound.value == pytest.approx(2.681e5, rel=3e-4)
    assert bound.basis == "proved"
    assert len(bound.layers) == 110
    matrix = torch.eye(100, dtype=torch.float64)
    for layer in layers:
        matrix = layer.weight.detach().double() @ matrix
    assert float(torch.linalg.matrix_norm(matrix, 2)) == pytest.approx(8.5e-27, rel=2e-3)


# How layers combine.


def test_layers_multiply_and_report_their_shares():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4), nn.Sigmoid())
    bound = product(network, (6,))
    assert bound.value == pytest.approx(norm(network[0]) * norm(network[2]) / 4, rel=1e-9)
    assert [(layer.name, layer.kind) for layer in bound.layers] == [
        ("0", "Linear"),
        ("1", "Tanh"),
        ("2", "Linear"),
        ("3", "Sigmoid"),
    ]
    assert math.prod(layer.norm for layer in bound.layers) == pytest.approx(bound.value, rel=1e-12)
    assert sum(abs(layer.share) for layer in bound.layers) == pytest.approx(1)
    assert bound.layers[3].share < 0  # it shrinks
    with pytest.raises(FrozenInstanceError):
        bound.value = 0.0


def test_a_residual_block_adds():
    torch.manual_seed(1)
    network = Net(lambda m, x: functional.relu(x + m.b(functional.relu(m.a(x)))), a=nn.Linear(5, 7), b=nn.Linear(7, 5))
    want = 1 + norm(network.a) * norm(network.b)
    assert product(network, (5,)).value == pytest.approx(want, rel=1e-9)
    assert product(nn.Sequential(network, network), (5,)).value == pytest.approx(want**2, rel=1e-9)


def test_a_concatenation_adds_squares():
    torch.manual_seed(2)
    network = Net(lambda m, x: torch.cat([m.a(x), m.b(x)], 1), a=nn.Linear(5, 7), b=nn.Linear(5, 5))
    assert product(network, (5,)).value == pytest.approx(math.hypot(norm(network.a), norm(network.b)), rel=1e-9)
    network.run = lambda m, x: torch.stack([m.b(x), 2 * x, torch.ones_like(x)], 1)
    assert product(network, (5,)).value == pytest.approx(math.hypot(norm(network.b), 2), rel=1e-9)


def test_a_shared_layer_counts_each_time():
    torch.manual_seed(3)
    network = Net(lambda m, x: m.a(m.a(x)), a=nn.Linear(5, 5))
    bound = product(network, (5,))
    assert bound.value == pytest.approx(norm(network.a) ** 2, rel=1e-9)
    assert [layer.name for layer in bound.layers] == ["a", "a"]


def test_constants_do_not_count_and_broadcasting_does():
    offset = nn.Parameter(torch.randn(5))
    assert product(Net(lambda m, x: x + 3 * m.offset - 1, offset=offset), (5,)).value == pytest.approx(1)
    # each entry of x is used five times
    network = Net(lambda m, x: x[:, :, None] + m.offset, offset=offset)
    assert product(network, (4,)).value == pytest.approx(math.sqrt(5))
    network = Net(lambda m, x: torch.sub(x, x.mean(1, keepdim=True), alpha=3))
    assert product(network, (4,)).value == pytest.approx(1 + 3)
    assert product(Net(lambda m, x: x.expand(-1, 3, -1)), (1, 6)).value == pytest.approx(math.sqrt(3))


def test_fixed_normalisation_is_its_largest_factor():
    std = torch.tensor([0.2, 0.5, 4.0]).view(-1, 1, 1)
    network = Net(lambda m, x: (x - 0.5) / m.std, std=nn.Parameter(std))
    assert product(network, (3, 4, 4)).value == pytest.approx(5, rel=1e-6)


# Linear pieces, for which the exact norm of the whole is the norm of one Jacobian.

EXACT = {
    "conv": (nn.Conv2d(2, 3, 3, stride=2, padding=1, dilation=2), (2, 7, 6)),
    "conv same": (nn.Conv2d(2, 3, (2, 4), padding="same"), (2, 5, 6)),
    "conv valid": (nn.Conv1d(2, 3, 4, padding="valid"), (2, 9)),
    "conv reflect": (nn.Conv2d(1, 2, 3, padding=2, padding_mode="reflect"), (1, 5, 4)),
    "conv 3d": (nn.Conv3d(1, 2, 2, padding=1), (1, 3, 3, 3)),
    "depthwise": (nn.Conv2d(4, 8, 3, groups=4), (4, 5, 5)),
    "conv2d": (Net(lambda m, x: functional.conv2d(x, m.w, None, 2), w=nn.Parameter(torch.ones(3, 2, 2, 2))), (2, 6, 6)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2, dilation=2), (4, 4, 3)),
    "transposed 1d": (nn.ConvTranspose1d(2, 3, 5, stride=3), (2, 4)),
    "linear": (nn.Linear(5, 3), (5,)),
    "linear on tokens": (nn.Linear(5, 3), (4, 5)),
    "matmul": (Net(lambda m, x: x @ m.w, w=nn.Parameter(torch.randn(5, 3))), (5,)),
    "average": (nn.AvgPool2d(2), (1, 6, 6)),
    "average, overlapping": (nn.AvgPool2d(3, stride=1, padding=1), (2, 5, 6)),
    "average, pad not counted": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), (1, 6, 5)),
    "average, ceil": (nn.AvgPool2d((3, 2), 2, ceil_mode=True), (1, 6, 5)),
    "average, ceil and pad": (nn.AvgPool2d(4, 3, 2, ceil_mode=True), (1, 6, 6)),
    "average, divisor": (nn.AvgPool2d(3, 2, divisor_override=2), (1, 7, 6)),
    "average 1d": (nn.AvgPool1d(3, 2), (2, 9)),
    "average 3d": (nn.AvgPool3d(2, 1), (1, 3, 3, 3)),
    "adaptive average": (nn.AdaptiveAvgPool2d((3, 2)), (2, 7, 5)),
    "global average": (nn.AdaptiveAvgPool2d(1), (2, 7, 5)),
    "mean": (Net(lambda m, x: x.mean((2, 3))), (2, 4, 5)),
    "sum": (Net(lambda m, x: x.sum(1)), (6, 5)),
    "reflection pad": (nn.ReflectionPad2d((1, 3, 2, 0)), (1, 4, 5)),
    "replication pad": (nn.ReplicationPad1d((3, 1)), (2, 4)),
    "circular pad": (nn.CircularPad2d(2), (1, 4, 3)),
    "zero pad": (nn.ZeroPad2d((1, -1, 0, 2)), (1, 4, 5)),
    "pad": (Net(lambda m, x: functional.pad(x, (2, 1), mode="circular")), (2, 3)),
    "repeat": (Net(lambda m, x: x.repeat(1, 3, 2)), (2, 4)),
    "shuffle": (nn.PixelShuffle(2), (8, 3, 3)),
}  # fmt: skip


VARIANTS = ("conv valid", "conv 3d", "transposed 1d", "average 1d", "average 3d", "average, ceil", "adaptive average")
"""Of others in the list."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in VARIANTS)) for n in EXACT])
def test_a_linear_piece_has_its_exact_norm(name):
    module, shape = EXACT[name]
    torch.manual_seed(4)
    bound = product(module.double(), shape).value
    true = jacobian_norm(module, torch.randn(shape))
    assert true * (1 - 1e-12) <= bound <= true * (1 + 1e-6)


def test_batch_normalisation_is_folded_into_the_layer_before_it():
    torch.manual_seed(5)
    for layer, batch_norm, shape in [
        (nn.Conv2d(2, 6, 3, groups=2), nn.BatchNorm2d(6), (2, 5, 5)),
        (nn.ConvTranspose2d(2, 6, 3, groups=2), nn.BatchNorm2d(6), (2, 5, 5)),
        (nn.Linear(5, 6), nn.BatchNorm1d(6), (5,)),
        (nn.Linear(5, 4), nn.BatchNorm1d(6), (6, 5)),  # its channels are not the layer's outputs
        (nn.ReLU(), nn.BatchNorm3d(6, affine=False), (6, 2, 2, 2)),
    ]:
        batch_norm.running_var.uniform_(0.01, 4)
        if batch_norm.affine:
            nn.init.normal_(batch_norm.weight)
        network = nn.Sequential(layer, batch_norm).double().eval()
        bound = product(network, shape)
        true = jacobian_norm(network, torch.randn(shape))
        assert true <= bound.value * (1 + 1e-12)
        if len(bound.layers) == 1:
            assert bound.layers[0].name == "0+1"
            assert bound.layers[0].kind.endswith("+" + type(batch_norm).__name__)
            assert bound.value <= true * (1 + 1e-6)
    assert len(bound.layers) == 2


def test_a_layer_that_others_use_too_is_not_lost_by_folding():
    torch.manual_seed(6)
    network = Net(lambda m, x: (lambda y: m.bn(y) + y)(m.conv(x)), conv=nn.Conv2d(1, 2, 3), bn=nn.BatchNorm2d(2)).eval()
    network.bn.weight.data = torch.tensor([2.0, 3.0])
    single = product(network.conv, (1, 5, 5)).value
    assert single < jacobian_norm(network, torch.randn(1, 5, 5)) <= product(network.float(), (1, 5, 5)).value
    assert product(network, (1, 5, 5)).value <= 4.001 * single


# Activations: their steepest slope, on a fine grid.

ACTIVATIONS = [
    nn.ReLU(), nn.ReLU6(), nn.Hardtanh(), nn.Tanh(), nn.Sigmoid(), nn.Softplus(1, 40), nn.Softplus(3, 40),
    nn.Softsign(), nn.Softshrink(), nn.LogSigmoid(), nn.LeakyReLU(), nn.LeakyReLU(-2.5), nn.ELU(), nn.ELU(1.5),
    nn.SELU(), nn.PReLU(), nn.PReLU(1, 3.0), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Mish(), nn.Hardsigmoid(),
    nn.Hardswish(), nn.CELU(2.0), nn.Tanhshrink(),
]  # fmt: skip


def slopes(activations):
    """What the table of layers says of each, all of them in one network."""
    network = Net(lambda m, x: torch.cat([part(x) for part in m.parts], 1), parts=nn.ModuleList(activations)).double()
    return [layer.norm for layer in product(network, (2,)).layers]


def test_an_activation_has_its_steepest_slope():
    for activation, bound in zip(ACTIVATIONS, slopes(ACTIVATIONS), strict=True):
        x = torch.linspace(-12, 12, 480_001, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(activation(x).sum(), x)
        steepest = float(slope.abs().max())
        assert steepest * (1 - 1e-7) <= bound <= steepest * (1 + 1e-4), activation


@mp.workdps(30)
def test_the_constants_of_gelu_silu_and_mish_are_rounded_up():
    functions = {
        nn.GELU(): lambda x: x * mp.ncdf(x),
        nn.GELU("tanh"): lambda x: x / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3))),
        nn.SiLU(): lambda x: x / (1 + mp.exp(-x)),
        nn.Mish(): lambda x: x * mp.tanh(mp.log(1 + mp.exp(x))),
    }
    for (_, function), bound in zip(functions.items(), slopes(functions), strict=True):
        steepest = mp.findroot(lambda x, f=function: mp.diff(f, x, 2), 1.6)
        slope = mp.diff(function, steepest)
        assert slope < bound < slope + mp.mpf("2e-7")


def test_softmax_and_its_logarithm():
    """½ at (½, ½, 0, …); √n at a vertex."""
    for module in (nn.Softmax(1), Net(lambda m, x: x.softmax(-1))):
        assert product(module, (5,)).value == 0.5
        steep = jacobian_norm(module, torch.tensor([0.0, 0.0, -40.0, -40.0, -40.0]))
        assert steep == pytest.approx(0.5, rel=1e-12)
    assert product(nn.LogSoftmax(1), (5,)).value == math.sqrt(5)
    steep = jacobian_norm(nn.LogSoftmax(1), torch.tensor([40.0, 0.0, 0.0, 0.0, 0.0]))
    assert steep == pytest.approx(math.sqrt(5), rel=1e-12)


# Max pooling: an input that wins every window it stands in attains the bound.


def pool_rule(size, out, *settings):
    """What the table says of a max pooling, without a network around it."""
    rule = rules.find(torch.ops.aten.max_pool2d_with_indices.default).rule
    return rule(out, Signal(size, 1.0, torch.ones(size, dtype=torch.int8)), *settings)


def test_max_pooling_counts_the_windows_that_an_input_can_win():
    rng = np.random.default_rng(7)
    pools = [nn.MaxPool2d(3, 2, 1)]
    for _ in range(60):
        k, s, d = (int(v) for v in rng.integers(1, 5, 3))
        pools.append(nn.MaxPool2d(k, s, int(rng.integers(0, k // 2 + 1)), d, ceil_mode=bool(rng.integers(2))))
    for pool in pools:
        size = tuple(int(v) for v in rng.integers(1, 12, 2))
        alone = torch.eye(math.prod(size), dtype=torch.float64).reshape(-1, 1, *size)
        try:
            pooled = pool(alone)
        except RuntimeError:  # no output
            continue
        attained = float(pooled.flatten(1).norm(dim=1).max())
        if math.isinf(attained):  # a window of padding alone
            continue
        settings = ([n, n] for n in (pool.kernel_size, pool.stride, pool.padding, pool.dilation))
        assert pool_rule((1, *size), tuple(pooled.shape[1:]), *settings) == pytest.approx(attained, rel=1e-12)
    pool = nn.AdaptiveMaxPool2d((3, 2))
    attained = float(pool(torch.eye(35).reshape(-1, 1, 7, 5)).flatten(1).norm(dim=1).max())
    assert product(pool, (1, 7, 5)).value == pytest.approx(attained, rel=1e-6)
    assert product(nn.MaxPool2d(3, 2, 1), (64, 112, 112)).value == 2  # that of ResNet-50


def test_the_interior_count_of_windows():
    """⌈k·gcd(s, d)/s⌉ on each axis, away from the borders."""
    for k in range(1, 6):
        for s in range(1, 6):
            for d in range(1, 5):
                shape = tuple(functional.max_pool2d(torch.empty(1, 1, 120), (1, k), (1, s), dilation=(1, d)).shape)
                value = pool_rule((1, 1, 120), shape, (1, k), (1, s), 0, (1, d))
                assert value == pytest.approx(math.sqrt(-(-k * math.gcd(s, d) // s)))


# Every other operation in networks of random weights: no Jacobian exceeds the bound.


def zoo():
    """Networks by name: a shape, a function of the parts and the input, and the parts."""
    torch.manual_seed(8)

    def linear(*sizes):
        return dict(zip("ab", (nn.Linear(*pair) for pair in sizes), strict=False))

    pools = lambda m, x: functional.avg_pool2d(functional.max_pool2d(m.a(x), 3, 2, 1), 2).flatten(1)  # noqa: E731
    views = lambda m, x: m.a(x.permute(0, 2, 1).contiguous().view(x.size(0), -1)).reshape(x.shape[0], 2, -1)  # noqa: E731
    statistics = {name: nn.Parameter(torch.rand(3), requires_grad=False) for name in ("mean", "var")}
    return {
        "slices": ((6,), lambda m, x: m.a(x[:, 1:4]) + x[:, ::2], linear((3, 3))),
        "chunks": ((6,), lambda m, x: (lambda c: torch.cat([c[1], m.a(c[0])], 1))(x.chunk(2, 1)), linear((3, 3))),
        "split": ((6,), lambda m, x: x.split(2, 1)[1] - x.split(2, 1)[0], {}),
        "extremes": ((4,), lambda m, x: torch.maximum(m.a(x), m.b(x)) - x.min(1)[0][:, None], linear((4, 4), (4, 4))),
        "two maxima": ((4,), lambda m, x: torch.max(m.a(x), x) + x.amax(1, keepdim=True), linear((4, 4))),
        "sorting": ((4,), lambda m, x: m.a(torch.sort(x, 1).values) + x.sort(1)[0], linear((4, 4))),
        "group sort": ((6, 5), lambda m, x: m.a(x), {"a": nn.Sequential(GroupSort(3), nn.Linear(5, 2), GroupSort())}),
        "views": ((2, 3), views, linear((6, 4))),
        "gelu": ((4,), lambda m, x: functional.gelu(m.a(x), approximate="tanh"), linear((4, 4))),
        "slopes": ((4,), lambda m, x: functional.silu(functional.leaky_relu(m.a(x), -3.0)).abs(), linear((4, 4))),
        "clamped": ((4,), lambda m, x: -m.a(x).clamp(-1, 1) / 0.25 + functional.elu(x, 2.0), linear((4, 4))),
        "pools": ((1, 9, 9), pools, {"a": nn.Conv2d(1, 3, 3)}),
        "adaptive": (
            (2, 6, 7),
            lambda m, x: functional.adaptive_avg_pool2d(functional.adaptive_max_pool2d(x, 4), 3),
            {},
        ),
        "dropout": ((4,), lambda m, x: m.a(x), {"a": nn.Sequential(nn.Dropout(), nn.Linear(4, 4), nn.Dropout1d())}),
        "logsumexp": ((4,), lambda m, x: torch.logsumexp(3 * x, 1, keepdim=True) + x.softmax(1), {}),
        "prelu": ((4,), lambda m, x: functional.prelu(x, m.w), {"w": nn.Parameter(torch.tensor([-2.0]))}),
        "batch norm": ((4,), lambda m, x: functional.batch_norm(m.a(x), m.mean, m.var), linear((4, 3)) | statistics),
    }


@pytest.mark.parametrize("name", some(zoo()))
def test_no_jacobian_exceeds_the_bound(name):
    shape, run, parts = zoo()[name]
    network = Net(run, **parts).eval()
    bound = product(network, shape).value
    torch.manual_seed(9)
    norms = [jacobian_norm(network, 3 * torch.randn(shape)) for _ in range(20)]
    assert max(norms) <= bound * (1 + 1e-9)
    assert max(norms) >= bound / 12  # and the bound is not an empty one


@pytest.mark.parametrize("model", [pytest.param("cifar_resnet20", marks=pytest.mark.slow), "cifar_small"])
def test_the_built_in_networks_are_covered(model):
    from smoothcert import models

    torch.manual_seed(10)
    network = models.build(model).eval()
    shape = (3, 32, 32)
    bound = product(network, shape, "gram")
    x = torch.rand(1, *shape, requires_grad=True)
    (gradient,) = torch.autograd.grad(network(x)[0, 0], x)
    assert float(gradient.norm()) <= bound.value


def test_the_three_methods_agree():
    torch.manual_seed(11)
    network = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    proved, gram, power = (product(network, (2, 6, 6), method) for method in ("fourier", "gram", "power"))
    assert (proved.basis, gram.basis, power.basis) == ("proved", "proved", "estimated")
    assert proved.value <= gram.value <= proved.value * (1 + 1e-4)
    assert power.value <= proved.value <= power.value * 1.05


# Designs that know their own bound, and rules of one's own.


class Unit(nn.Module):
    """A layer that is 3-Lipschitz by construction, written so that nobody sees it."""

    def forward(self, x):
        return torch.where(x > 0, 3 * x, -3 * x)

    def lipschitz_bound(self):
        return 3.0


class Condition(Unit):
    """One that cannot be traced."""

    def forward(self, x):
        return 3 * x if x.sum() > 0 else 3 * x.clone()

    def lipschitz_bound(self):
        return 3.0


class NoBound(Unit):
    def lipschitz_bound(self):
        return math.nan


def test_a_design_answers_for_itself():
    bound = product(nn.Sequential(Unit(), nn.Sigmoid(), Unit()), (4,))
    assert bound.value == 9 / 4
    assert bound.layers[0].kind == "Unit"
    assert product(Unit(), (4,)).value == 3
    assert product(Condition(), (4,)).value == 3
    for network in (NoBound(), nn.Sequential(NoBound(), nn.Linear(4, 4))):
        with pytest.raises(InputError, match="which is no bound"):
            product(network, (4,))


def test_a_bound_is_that_of_its_class_alone():
    class Steeper(Unit):
        def forward(self, x):
            return torch.where(x > 0, 100 * x, -100 * x)

    replaced, hooked, promised = Unit(), Unit(), Unit()
    replaced.forward = Steeper().forward
    hooked.register_forward_hook(lambda module, inputs, output: 100 * output)
    promised.lipschitz_bound = lambda: 1.0
    for part in (Steeper(), replaced, hooked, promised):
        with pytest.raises(InputError, match=r"no Lipschitz rule for aten\.gt"):  # looked into, and not understood
            product(nn.Sequential(part, nn.Flatten()), (4,))
    with pytest.raises(InputError, match=r"no Lipschitz rule for aten\.gt"):
        product(Steeper(), (4,))


def test_a_design_within_a_design_and_a_design_called_twice():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Unit()

        def forward(self, x):
            return self.inner(self.inner(x)) / 9

        def lipschitz_bound(self):
            return 1.0

    assert product(nn.Sequential(Outer(), nn.Flatten()), (4,)).value == 1
    opened = product(Outer(), (4,), inside=True)
    assert opened.value == pytest.approx(1)
    assert [layer.kind for layer in opened.layers] == ["Unit", "Unit", "div.Tensor"]


def test_a_bound_that_is_too_small_trips_the_wire():
    class Wrong(Unit):
        def forward(self, x):
            return torch.where(x > 0, 3.01 * x, x)

        def lipschitz_bound(self):
            return 3.0

    for network in (Wrong(), nn.Sequential(Wrong(), nn.Flatten())):
        with pytest.raises(RunError, match=r"a slope of 3.01, above its bound 3: one of the rules"):
            product(network, (4,))


@pytest.fixture
def table(monkeypatch):
    monkeypatch.setattr(rules, "_TABLE", dict(rules._TABLE))


def test_an_operation_without_a_rule_is_named_and_can_be_given_one(table):
    network = Net(lambda m, x: torch.asinh(2 * x) + torch.atan2(x, x))
    with pytest.raises(InputError, match=r"no Lipschitz rule for aten.asinh in Net.*smoothcert.lipschitz.register"):
        product(network, (4,))
    register(torch.ops.aten.asinh)(lambda shape, x: 1.0)
    with pytest.raises(InputError, match=r"no Lipschitz rule for aten\.atan2"):
        product(network, (4,))
    register(torch.ops.aten.atan2.default)(lambda shape, a, b: Join(a.bound + 50 * b.bound))
    assert product(network, (4,)).value == 53
    with pytest.raises(InputError, match="for an ATen operation such as"):
        register(torch.asinh)


def test_a_wrong_rule_trips_the_wire(table):
    register(torch.ops.aten.relu)(lambda shape, x: 0.9)
    for dtype in (torch.float32, torch.float64):
        with pytest.raises(RunError, match=r"above its bound 0.9"):
            product(nn.Sequential(nn.Identity(), nn.ReLU()).to(dtype), (4,))
    # steep only near the data
    register(torch.ops.aten.relu)(lambda shape, x: 1.0)
    cliff = Net(lambda m, x: x + 5 * torch.relu(x - 1e4))
    register(torch.ops.aten.sub.Tensor)(lambda shape, x, y: Join(0.0))
    assert product(cliff, (4,)).value == 1
    with pytest.raises(RunError, match="above its bound 1"):
        product(cliff, (4,), near=torch.full((2, 4), 2e4))
    with pytest.raises(InputError, match="`near` must be a batch of inputs of shape"):
        product(cliff, (4,), near=torch.zeros(2, 5))


def test_where_a_module_cannot_be_copied_to_float64_its_own_type_is_measured(table):
    network = Net(lambda m, x: torch.relu(x.float()))
    assert product(network, (50,)).value == 1
    register(torch.ops.aten.relu)(lambda shape, x: 0.9)
    with pytest.raises(RunError, match=r"above its bound 0.9"):
        product(network, (50,))


def test_a_module_can_be_given_a_rule(table):
    class Doubled(nn.Linear):
        def forward(self, x):
            return torch.where(x.sum(1, keepdim=True) > 0, 2 * super().forward(x), super().forward(x + x))

    layer = Doubled(4, 4, bias=False)
    with pytest.raises(InputError, match=r"no Lipschitz rule for aten\.gt"):  # no rule of its parent is inherited
        product(nn.Sequential(layer), (4,))
    register(Doubled)(lambda shape, module, x: Convolution(2 * module.weight.detach()[None]))
    assert product(nn.Sequential(layer), (4,)).value == pytest.approx(2 * norm(layer), rel=1e-6)


def test_a_parametrised_layer_counts_with_its_weight():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    assert product(layer, (4,)).value == pytest.approx(norm(layer), rel=1e-6)


def test_a_hook_counts():
    layer = nn.utils.spectral_norm(nn.Linear(4, 3)).eval()
    assert product(layer, (4,)).value == pytest.approx(norm(layer), rel=1e-6)
    layer.register_forward_hook(lambda module, inputs, output: 5 * output)
    assert product(layer, (4,)).value == pytest.approx(5 * norm(layer), rel=1e-6)


def test_the_last_layer_and_what_stands_before_it():
    torch.manual_seed(13)
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 4))
    bound = product(network, (1, 5, 5))
    assert bound.last.before * norm(network[3]) == pytest.approx(bound.value, rel=1e-9)
    assert torch.equal(bound.last.weight, network[3].weight.detach().double())
    assert product(nn.Sequential(network, nn.Sigmoid()), (1, 5, 5)).last is None
    from smoothcert.models import load_model

    own = load_model("digits_lipschitz", device="cpu")  # its last layer answers for itself, and is linear
    last = product(own, (1, 8, 8)).last
    features = own[:-1](torch.rand(5, 1, 8, 8))
    torch.testing.assert_close(own[-1](features) - own[-1].bias, (features.double() @ last.weight.T).float())
    assert last.before <= 1


# What is refused, in one sentence.


def test_layer_norm_and_attention_are_refused_with_the_reason():
    statistic, attention = "divides by a statistic of its own input", "as in dot-product attention, is not globally"
    tokens = Net(lambda m, x: m.attention(x, x, x)[0], attention=nn.MultiheadAttention(4, 2, batch_first=True))
    for module, shape, name, reason in [
        (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), (4,), "LayerNorm (1)", statistic),
        (nn.GroupNorm(2, 4), (4, 3), "GroupNorm", statistic),
        (nn.InstanceNorm2d(3), (3, 4, 4), "InstanceNorm2d", statistic),
        (nn.RMSNorm(4), (4,), "RMSNorm", statistic),
        (Net(lambda m, x: functional.normalize(x)), (4,), "div", "division by a signal"),
        (Net(lambda m, x: functional.layer_norm(x, (4,))), (4,), "layer_norm", statistic),
        (tokens, (5, 4), "attention", attention),
        (nn.TransformerEncoderLayer(4, 2, dropout=0.0, batch_first=True), (5, 4), "MultiheadAttention", attention),
        (Net(lambda m, x: functional.scaled_dot_product_attention(x, x, x)), (5, 4), "scaled_dot", attention),
    ]:
        with pytest.raises(InputError, match=reason) as error:
            product(module.eval(), shape)
        assert name in str(error.value)


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (lambda m, x: x * x, "product of two signals"),
        (lambda m, x: 1 / x, "division by a signal"),
        (lambda m, x: x @ x.transpose(1, 2), "matrix product of two signals"),
        (lambda m, x: torch.einsum("bij,bkj->bik", x, x), "product of two signals"),
        (lambda m, x: functional.linear(x, x[0]), "depend on the input"),
        (lambda m, x: functional.softplus(x), "jumps at its threshold"),
        (lambda m, x: functional.softplus(x, threshold=100), "overflows before it"),
        (lambda m, x: x.exp(), "no Lipschitz rule for aten.exp"),
        (lambda m, x: x.gather(1, x.argsort(1)), "which jump with the input"),
        (lambda m, x: x.max(1)[1].float(), "which jump with the input"),
        (lambda m, x: x.round(), "no Lipschitz rule for aten.round"),
        (lambda m, x: torch.where(x > 0, x, -2 * x), "no Lipschitz rule for aten.gt"),
        (lambda m, x: x.grad, "one tensor"),
        (lambda m, x: torch.ones(len(x), 2), "depends on its input"),
        (lambda m, x: (x, x), "one tensor"),
        (lambda m, x: x if x.sum() > 0 else -x, "cannot follow"),
        (lambda m, x: functional.dropout(x, training=True), "aten.native_dropout is random"),
        (lambda m, x: functional.batch_norm(x, None, None, training=True), "statistics of the batch"),
        (lambda m, x: x / 0.0, "not Lipschitz"),
        (lambda m, x: torch.div(x, 2, rounding_mode="floor"), "no Lipschitz rule for aten.div.Tensor_mode"),
        (lambda m, x: x.sum(1).sum(), "mixes the rows"),
        (lambda m, x: x.contiguous().as_strided((len(x), 4), (16, 0)), "no Lipschitz rule for aten.as_strided"),
    ],
)
def test_what_has_no_constant_is_refused(run, says):
    with pytest.raises(InputError, match=says) as error:
        product(Net(run), (4, 4))
    assert "\n" not in str(error.value)


def test_training_mode_is_refused_and_leaves_the_statistics_alone():
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    before = network[1].running_var.clone()
    with pytest.raises(InputError, match=r"BatchNorm2d '1' is in training mode: call \.eval\(\)"):
        product(network, (1, 5, 5))
    assert torch.equal(network[1].running_var, before)
    assert int(network[1].num_batches_tracked) == 0
    with pytest.raises(InputError, match="Dropout '0' is in training mode"):
        product(nn.Sequential(nn.Dropout()), (3,))
    with pytest.raises(InputError, match="statistics of the batch"):
        product(nn.BatchNorm1d(3, track_running_stats=False).eval(), (3, 4))


def test_bad_input_is_one_sentence():
    network = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(18, 2))
    assert product(network, (3, 5, 5)).value == product(network, (1, 3, 5, 5)).value  # a batch of one
    for shape, says in [
        ((4, 5, 5), r"shape \(4, 5, 5\) does not fit 0"),
        ((3, 6, 6), r"shape \(3, 6, 6\) does not fit 2"),
        ((1, 4, 5, 5), r"shape \(1, 4, 5, 5\) does not fit 0"),
        ((), "such as"),
        ((3, 0, 5), "such as"),
        (3, "such as"),
        ((3.0, 5, 5), "such as"),
    ]:
        with pytest.raises(InputError, match=says) as error:
            product(network, shape)
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"shape \(5, 5\) does not fit 0"):
        product(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()), (5, 5))
    with pytest.raises(InputError, match="no method 'svd'"):
        product(network, (3, 5, 5), "svd")
    network[2].weight.data[0, 0] = math.nan
    with pytest.raises(InputError, match=r"2\.weight of the module is not finite"):
        product(network, (3, 5, 5))


def test_the_table_uses_float64_whatever_the_network_is_stored_in():
    torch.manual_seed(12)
    layer = nn.Linear(50, 50).bfloat16()
    true = float(torch.linalg.matrix_norm(layer.weight.detach().double(), 2))
    assert product(layer, (50,)).value == pytest.approx(true, rel=1e-9)
    assert fourier(Convolution(layer.weight.detach().double()[None])) >= true
