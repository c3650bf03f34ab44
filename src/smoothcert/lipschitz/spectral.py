"""Largest singular values of convolutions and matrices: two bounds from above, one estimate from below.

A zero-padded convolution is a part (some rows, some columns) of the convolution on a torus that is large enough for
no tap to come round to another input, and it stays one when the torus is twisted, that is when going round once
multiplies by a phase. So for every such torus its norm is at most the largest singular value of the symbol
`Ŵ(ω) = Σ_t W_t e^{iωt}` over `ω = 2π(m + τ)/N`, τ the twist (Sedghi, Gupta and Long, 2019, without it). The twist
moves the frequencies off the peak of the symbol, which a small map cannot reach either. A stride s folds the
frequencies: the symbols of the s that alias stand side by side, divided by √s.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from smoothcert.errors import InputError

PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
FAR = 150
"""Powers of ten that factors may add up to: their squares stay far from where float64 ends."""


@dataclass(frozen=True)
class Convolution:
    """A convolution without its bias, on maps of one size; with no spatial axis it is a (block-diagonal) matrix.

    `weight` has the axes (groups, outputs/groups, inputs/groups, *kernel) and `padding` is what stands before each
    axis. A transposed convolution is the adjoint of the one described here and has the same norm.
    """

    weight: Tensor
    size: tuple[int, ...] = ()
    out: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    padding_mode: PaddingMode = "zeros"
    adjoint: bool = False

    def padding_after(self, axis: int) -> int:
        """How far the last tap reaches behind the last input; negative where inputs remain unused."""
        reach = self.dilation[axis] * (self.weight.shape[3 + axis] - 1)
        return (self.out[axis] - 1) * self.stride[axis] + reach + 1 - self.padding[axis] - self.size[axis]

    def small(self) -> bool:
        """Whether its matrix is: there the borders of the map matter most, and the matrix has them right."""
        groups, outputs, inputs = self.weight.shape[:3]
        columns, rows = groups * inputs * math.prod(self.size), groups * outputs * math.prod(self.out)
        return columns * max(columns, rows) <= _MATRIX

    def matrix(self) -> Convolution:
        """The same operator as its transposed matrix."""
        groups, _, inputs = self.weight.shape[:3]
        columns = groups * inputs * math.prod(self.size)
        eye = torch.eye(columns, dtype=torch.float64).reshape(columns, groups * inputs, *self.size)
        return Convolution(_apply(self, eye).reshape(1, columns, -1))

    def scaled(self, scale: Tensor) -> Convolution:
        """Followed by a multiplication of each output channel: what a batch normalisation folds into."""
        groups, outputs, inputs = self.weight.shape[:3]
        channels = (groups, 1, inputs) if self.adjoint else (groups, outputs, 1)
        scale = scale.double().reshape(*channels, *(1 for _ in self.size))
        require_moderate([self.weight, scale])
        return replace(self, weight=self.weight * scale)


def require_moderate(factors: Sequence[Tensor]) -> None:
    """Refuses factors whose products could leave float64, or be lost, in any order."""
    sizes = [factor.detach().double().abs() for factor in factors]
    powers = [size[(size > 0) & size.isfinite()].log10().abs() for size in sizes]
    if sum(float(power.max()) for power in powers if power.numel()) > FAR:
        raise InputError(f"products of its weights are beyond 1e{FAR} or within 1e-{FAR} of 0: rescale them.")


def fourier(operator: Convolution) -> float:
    """An upper bound of the norm: the largest singular value over the frequencies of the best torus."""
    return _over_tori(operator, lambda grams: float(torch.linalg.eigvalsh(grams)[:, -1].max()))


def gram(operator: Convolution, tolerance: float = 1e-6) -> float:
    """The same bound with few eigenvalues: a μ for which `μI − ŴŴ*` is positive definite at every frequency.

    The eigenvalue of one frequency proposes μ, up to `tolerance` above; a Cholesky factorisation of the others
    proves it or finds the frequencies that need a larger one. Faster than `fourier` for many channels.
    """
    return _over_tori(operator, lambda grams: _definite(grams, tolerance))


def power(operator: Convolution, steps: int = 100, seed: int = 0) -> float:
    """Power iteration on the operator itself (Ryu et al., 2019): converges from below, an estimate."""
    groups, _, inputs = operator.weight.shape[:3]
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, groups * inputs, *operator.size, dtype=torch.float64, generator=generator)
    norm = 0.0
    for _ in range(steps):
        with torch.enable_grad():
            x = (x / x.norm()).requires_grad_()
            y = _apply(operator, x)
        norm = float(y.detach().norm())
        if norm == 0.0:
            break
        (x,) = torch.autograd.grad(y, x, y.detach())
    return norm


def padding_norm(size: int, before: int, after: int, mode: PaddingMode) -> float:
    """The norm of a padding map along one axis: the root of how often an input is repeated."""
    if mode == "zeros":
        return 1.0
    return math.sqrt(int(torch.bincount(_sources(size, before, after, mode)).max()))


class _Torus(NamedTuple):
    """One axis of a torus: its points, the stride and dilation on it, and the twist (in turns) worth trying."""

    points: int
    stride: int
    dilation: int
    twist: float


_MATRIX = 1 << 21  # entries of a matrix that is computed with as such
_TWISTED = 32  # on a larger torus a twist gains less than 2 % for kernels that span 5
_ENTRIES = 1 << 22  # complex numbers held at a time
_TINY = 1e-200  # so that a zero matrix is below it


def _over_tori(operator: Convolution, largest: Callable[[Tensor], float]) -> float:
    """The smallest over two tori of the largest singular value, with the margin for rounding.

    The margin, relative: 16 ε times the number of entries and taps of the symbol. It covers the errors of the
    symbol, of its Gram matrix and of the eigenvalue, each bounded in the Frobenius norm.
    """
    pointwise = math.prod(operator.weight.shape[3:]) == 1 and operator.padding_mode == "zeros"
    if not pointwise and operator.small():
        operator = operator.matrix()
    weight = operator.weight.double()
    top = float(weight.abs().max()) if weight.numel() else 0.0
    if top == 0.0:
        return 0.0
    axes, repeats = _tori(operator)
    twists = {tuple(0.0 for _ in axes), tuple(axis.twist for axis in axes)}
    square = min(max(map(largest, _grams(weight / top, axes, twist))) for twist in twists)
    _, outputs, inputs = weight.shape[:3]
    entries = outputs * inputs * math.prod(axis.stride for axis in axes) * math.prod(weight.shape[3:])
    margin = 1 + 16 * torch.finfo(torch.float64).eps * entries
    return top * math.sqrt(max(square, 0.0)) * repeats * margin


def _tori(operator: Convolution) -> tuple[list[_Torus], float]:
    """For each axis a torus that contains the convolution, and the norm of the padding where that is not zeros."""
    axes, repeats = [], 1.0
    for axis, taps in enumerate(operator.weight.shape[3:]):
        size, out, s, d = operator.size[axis], operator.out[axis], operator.stride[axis], operator.dilation[axis]
        before, after = operator.padding[axis], operator.padding_after(axis)
        if operator.padding_mode == "circular" and size % s == 0 and out * s <= size:
            axes.append(_Torus(size, s, d, 0.0))
            continue
        if operator.padding_mode != "zeros":
            repeats *= padding_norm(size, before, after, operator.padding_mode)
            size, before, after = size + before + after, 0, 0
        if taps == 1:
            axes.append(_Torus(1, 1, 1, 0.0))
            continue
        # What reaches beyond one end of the map must not come round to its other end.
        reach = d * (taps - 1)
        least = size + min(after, 0) + max(0, min(before, reach), min(after, reach))
        # Inputs d apart do not meet: d interleaved tori, each with stride s / gcd(s, d) and no dilation.
        step = s // math.gcd(s, d)
        points = step * -(-least // (d * step))
        axes.append(_Torus(points, step, 1, 0.5 if points <= _TWISTED else 0.0))
    return axes, repeats


def _grams(weight: Tensor, axes: list[_Torus], twist: tuple[float, ...]) -> Iterator[Tensor]:
    """`Ŵ Ŵ*` or `Ŵ* Ŵ`, the smaller, at every frequency, some frequencies at a time."""
    groups, outputs, inputs, *kernel = weight.shape
    taps = torch.tensor(list(itertools.product(*map(range, kernel))), dtype=torch.float64)
    taps = taps * torch.tensor([axis.dilation for axis in axes])
    kernels, frequencies = weight.reshape(groups * outputs * inputs, -1).T, _frequencies(axes, twist)
    aliases = frequencies.shape[1]
    for part in torch.split(frequencies, max(1, _ENTRIES // (kernels.shape[1] * aliases))):
        angles = part.flatten(0, 1) @ taps.T
        phases = torch.exp(1j * angles) if angles.any() else torch.ones_like(angles)
        symbol = (phases @ kernels.to(phases.dtype)).reshape(-1, aliases, groups, outputs, inputs)
        symbol = symbol.permute(0, 2, 3, 1, 4).flatten(3).flatten(0, 1) / math.sqrt(aliases)
        yield symbol @ symbol.mH if outputs < inputs * aliases else symbol.mH @ symbol


def _frequencies(axes: list[_Torus], twist: tuple[float, ...]) -> Tensor:
    """The ω of the torus, (frequencies, aliases, axes); of ω and −ω, which have conjugate symbols, one is enough."""
    coarse = [range(axis.points // axis.stride) for axis in axes]
    if coarse:
        coarse[-1] = range(len(coarse[-1]) // 2 + 1 if twist[-1] == 0 else (len(coarse[-1]) + 1) // 2)
    aliases = [range(0, axis.points, axis.points // axis.stride) for axis in axes]
    first = torch.tensor(list(itertools.product(*coarse)), dtype=torch.float64) + torch.tensor(twist)
    index = first[:, None] + torch.tensor(list(itertools.product(*aliases)), dtype=torch.float64)
    return 2 * math.pi * index / torch.tensor([axis.points for axis in axes])


def _definite(grams: Tensor, tolerance: float) -> float:
    """A bound of the largest eigenvalue of a batch of Gram matrices, above it by at most (1 + tolerance)²."""
    sizes = torch.linalg.matrix_norm(grams)
    eye = torch.eye(grams.shape[-1], dtype=grams.dtype)
    bound = 0.0
    while len(grams):
        largest = max(float(torch.linalg.eigvalsh(grams[sizes.argmax()])[-1]), _TINY)
        bound = largest * (1 + tolerance) ** 2
        larger = torch.linalg.cholesky_ex(bound * eye - grams).info > 0
        grams, sizes = grams[larger], sizes[larger]
    return bound


def _apply(operator: Convolution, x: Tensor) -> Tensor:
    """The convolution itself, its padding written out."""
    groups, outputs, inputs, *kernel = operator.weight.shape
    weight = operator.weight.double()
    if not kernel:
        return torch.einsum("gab,ngb->nga", weight, x.reshape(-1, groups, inputs)).flatten(1)
    for axis, size in enumerate(operator.size):
        before, after = operator.padding[axis], operator.padding_after(axis)
        if operator.padding_mode == "zeros":
            x = functional.pad(x.movedim(axis + 2, -1), (before, max(after, 0))).movedim(-1, axis + 2)
            x = x.narrow(axis + 2, 0, before + size + after)
        else:
            x = x.index_select(axis + 2, _sources(size, before, after, operator.padding_mode))
    convolve = (functional.conv1d, functional.conv2d, functional.conv3d)[len(kernel) - 1]
    weight = weight.reshape(groups * outputs, inputs, *kernel)
    return convolve(x, weight, None, operator.stride, 0, operator.dilation, groups)


def _sources(size: int, before: int, after: int, mode: PaddingMode) -> Tensor:
    """The input that each position of the padded axis copies."""
    positions = torch.arange(-before, size + after)
    if mode == "circular":
        return positions % size
    if mode == "replicate":
        return positions.clamp(0, size - 1)
    period = max(2 * (size - 1), 1)
    folded = positions % period
    return torch.minimum(folded, period - folded)
