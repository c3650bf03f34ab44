"""Norms of convolutions against the dense matrix of the layer that torch runs."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.lipschitz import spectral
from smoothcert.lipschitz.spectral import Convolution, fourier, gram, power

torch.set_num_threads(1)
LAYERS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def dense(layer, channels, size):
    """The norm of the linear part of a layer, from its whole matrix."""
    columns = channels * math.prod(size)
    eye = torch.eye(columns, dtype=torch.float64).reshape(columns, channels, *size)
    with torch.no_grad():
        matrix = (layer(eye) - layer(torch.zeros_like(eye[:1]))).flatten(1)
    square = matrix @ matrix.T if matrix.shape[0] < matrix.shape[1] else matrix.T @ matrix
    return math.sqrt(max(float(torch.linalg.eigvalsh(square)[-1]), 0.0))


def random_layer(rng, sizes, axes, *, span=None, modes=("zeros",), channels=3):
    """A random convolution as torch's layer, as our operator, and the size of its map; None if it has no output."""
    draw = lambda low, high: tuple(int(v) for v in rng.integers(low, high, axes))  # noqa: E731
    kernel, dilation, stride, size = draw(1, 6), draw(1, 5), draw(1, 5), draw(*sizes)
    if span is not None:
        dilation = tuple(min(d, (span - 1) // (k - 1)) if k > 1 else d for d, k in zip(dilation, kernel, strict=True))
    mode = str(rng.choice(modes))
    most = {"reflect": -1, "circular": 0}.get(mode, 99)
    padding = tuple(min(p, n + most) for p, n in zip(draw(0, 7), size, strict=True))
    geometry = zip(size, padding, dilation, kernel, stride, strict=True)
    out = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in geometry)
    if min(out) < 1:
        return None
    groups = int(rng.integers(1, 3))
    outputs, inputs = (int(v) for v in rng.integers(1, channels + 1, 2))
    layer = LAYERS[axes](
        groups * inputs, groups * outputs, kernel, stride, padding, dilation, groups, padding_mode=mode
    ).double()
    kinds = (torch.randn_like, torch.rand_like, torch.ones_like, lambda w: torch.randint_like(w, -1, 2))
    layer.weight.data = kinds[rng.integers(4)](layer.weight.data)
    weight = layer.weight.data.reshape(groups, outputs, inputs, *kernel)
    operator = Convolution(weight, size, out, stride, padding, dilation, mode)
    return layer, operator, groups * inputs, size


@pytest.fixture(params=["matrix", "torus"])
def torus_only(request, monkeypatch):
    """Small layers are taken as matrices; with "torus" they are not, which tests the bound of large layers on them."""
    if request.param == "torus":
        monkeypatch.setattr(spectral, "_MATRIX", 0)
    return request.param == "torus"


def test_no_bound_is_below_the_matrix(torus_only):
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    tested = 0
    for _ in range(300):
        case = random_layer(rng, (1, 12), int(rng.integers(1, 3)), modes=("zeros", "reflect", "replicate", "circular"))
        if case is None:
            continue
        layer, operator, channels, size = case
        true = dense(layer, channels, size)
        bound = fourier(operator)
        assert bound >= true
        assert bound * (1 - 1e-9) <= gram(operator) <= bound * (1 + 1e-5)
        if not torus_only:
            assert bound <= true * (1 + 1e-6) + 1e-12 or not operator.small()
        tested += 1
    assert tested > 200


def test_on_maps_of_16_by_16_the_bound_is_within_10_percent(torus_only):
    rng = np.random.default_rng(1)
    torch.manual_seed(1)
    tested, worst = 0, 1.0
    for _ in range(110):
        case = random_layer(rng, (16, 18), 2, span=5, channels=1)
        if case is None:
            continue
        layer, operator, channels, size = case
        true = dense(layer, channels, size)
        if true == 0:
            continue
        ratio = fourier(operator) / true
        assert ratio >= 1
        worst = max(worst, ratio)
        tested += 1
    assert tested > 100
    assert worst <= 1.1


def test_many_channels_on_a_larger_map():
    """Above the size that is taken as a matrix: the norm of the layer itself, by a long power iteration."""
    torch.manual_seed(2)
    weight = torch.randn(1, 12, 8, 3, 3, dtype=torch.float64)
    operator = Convolution(weight, (16, 16), (8, 8), (2, 2), (1, 1), (1, 1))
    assert not operator.small()
    assert power(operator, steps=200) <= fourier(operator) <= 1.1 * power(operator, steps=200)


def test_three_axes():
    rng = np.random.default_rng(3)
    torch.manual_seed(3)
    cases = [case for case in (random_layer(rng, (2, 5), 3, channels=1) for _ in range(12)) if case]
    for layer, operator, channels, size in cases:
        assert fourier(operator) >= dense(layer, channels, size)
    assert cases


def test_the_twisted_torus_is_exact_where_the_plain_one_is_17_percent_off(monkeypatch):
    """Four taps, four apart, on 16×16 without padding: 16 interleaved maps of 4×4."""
    monkeypatch.setattr(spectral, "_MATRIX", 0)
    layer = nn.Conv2d(1, 1, 2, dilation=4, bias=False).double()
    layer.weight.data.fill_(1.0)
    operator = Convolution(layer.weight.data[None], (16, 16), (12, 12), (1, 1), (0, 0), (4, 4))
    assert fourier(operator) == pytest.approx(dense(layer, 1, (16, 16)), rel=1e-9)
    assert fourier(operator) == pytest.approx(2 + math.sqrt(2), rel=1e-9)


def test_reflection_exceeds_the_bound_for_zero_padding(torus_only):
    """3×3 of ones on 6×6: with zeros at most 9, with reflection 9.69."""
    layer = nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect", bias=False).double()
    layer.weight.data.fill_(1.0)
    geometry = ((6, 6), (6, 6), (1, 1), (1, 1), (1, 1))
    assert dense(layer, 1, (6, 6)) == pytest.approx(9.69, abs=5e-3)
    assert fourier(Convolution(layer.weight.data[None], *geometry)) <= 9 + 1e-9
    assert fourier(Convolution(layer.weight.data[None], *geometry, "reflect")) >= dense(layer, 1, (6, 6))


def test_circular_padding_is_the_torus_itself(monkeypatch):
    monkeypatch.setattr(spectral, "_MATRIX", 0)
    torch.manual_seed(4)
    layer = nn.Conv2d(2, 3, 3, stride=2, padding=1, padding_mode="circular", bias=False).double()
    operator = Convolution(layer.weight.data[None], (8, 6), (4, 3), (2, 2), (1, 1), (1, 1), "circular")
    assert fourier(operator) == pytest.approx(dense(layer, 2, (8, 6)), rel=1e-9)


def test_a_matrix_has_its_largest_singular_value():
    torch.manual_seed(5)
    for shape in [(1, 1), (7, 3), (3, 7), (40, 40)]:
        weight = torch.randn(1, *shape, dtype=torch.float64)
        true = float(torch.linalg.matrix_norm(weight[0], 2))
        for method in (fourier, gram, power):
            assert method(Convolution(weight)) == pytest.approx(true, rel=1e-2 if method is power else 2e-6)
        assert fourier(Convolution(weight)) >= true
        assert gram(Convolution(weight)) >= true


def test_power_iteration_comes_from_below():
    rng = np.random.default_rng(6)
    torch.manual_seed(6)
    for _ in range(40):
        case = random_layer(rng, (1, 9), 2, modes=("zeros", "reflect", "replicate", "circular"))
        if case is None:
            continue
        layer, operator, channels, size = case
        true = dense(layer, channels, size)
        assert power(operator, steps=5) <= true * (1 + 1e-12)
        assert power(operator, steps=200) == pytest.approx(true, rel=2e-2, abs=1e-12)


@pytest.mark.parametrize("factor", [0.0, 1e-180, 1e180])
def test_weights_of_any_size(factor, torus_only):
    torch.manual_seed(7)
    weight = torch.randn(1, 2, 2, 3, 3, dtype=torch.float64)
    geometry = ((5, 5), (5, 5), (1, 1), (1, 1), (1, 1))
    for method in (fourier, gram):
        unscaled = method(Convolution(weight, *geometry))
        assert method(Convolution(factor * weight, *geometry)) == pytest.approx(factor * unscaled, rel=1e-9)


def test_a_difference_has_a_frequency_of_norm_zero(torus_only):
    """The symbol of (1, −1) vanishes at 0: Gram matrices that are zero must not stop the search."""
    operator = Convolution(torch.tensor([[[[1.0, -1.0]]]]), (40,), (39,), (1,), (0,), (1,))
    assert 2 * math.cos(math.pi / 80) <= gram(operator) <= 2.0001


@pytest.mark.parametrize("adjoint", [False, True])
def test_scaling_channels_is_the_composed_operator(adjoint):
    torch.manual_seed(8)
    scale = torch.randn(6, dtype=torch.float64)
    if adjoint:
        layer = nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, groups=2, bias=False).double()
        weight, size, out = layer.weight.data.reshape(2, 2, 3, 3), (9,), (5,)
        operator = Convolution(weight, size, out, (2,), (1,), (1,), adjoint=True)
    else:
        layer = nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2, bias=False).double()
        weight, size, out = layer.weight.data.reshape(2, 3, 2, 3), (9,), (5,)
        operator = Convolution(weight, size, out, (2,), (1,), (1,))
    true = dense(lambda x: layer(x) * scale[:, None], 4, (5,) if adjoint else (9,))
    assert fourier(operator.scaled(scale)) == pytest.approx(true, rel=1e-9)
