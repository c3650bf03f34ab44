"""The Lipschitz constant (ℓ2 → ℓ2) of every operation a network may contain: one table, operation → rule.

A rule receives the shape of the operation's output and the operation's own arguments (for a module: the module, then
its arguments), where each tensor that depends on the network's input is a `Signal`. It returns

- a number: the constant of an operation on one signal,
- a `Convolution`: an operation on one signal whose norm the chosen method computes,
- a `Join`: the bound of the output itself, for an operation that brings several signals together,

or raises `InputError` with the reason why the operation has no useful constant. An operation that is not in the table
is an error; `register` adds one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.errors import InputError
from smoothcert.lipschitz.spectral import Convolution, fourier, padding_norm

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Signal:
    """A tensor that depends on the input of the network: its shape and the Lipschitz bound of that dependence.

    `pending` is a linear layer whose norm has not been taken yet, and `bound` is then that of the layer's input:
    a batch normalisation folds itself into it.
    """

    shape: Shape
    bound: float
    pending: Convolution | None = None
    name: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Join:
    """The Lipschitz bound of a value that several paths lead to."""

    bound: float


Rule = Callable[..., "float | Convolution | Join"]
AnyRule = TypeVar("AnyRule", bound=Rule)

_TABLE: dict[Any, Rule] = {}
_FOLDING: set[Any] = set()


def register(*operations: Any, folds: bool = False) -> Callable[[AnyRule], AnyRule]:
    """Give operations a rule: module classes, functions, or names of tensor methods.

    With `folds` the rule receives the linear layer before it as `Signal.pending`, to fold itself into.

    >>> @register(torch.cos, "cos")
    ... def cosine(shape, x):
    ...     return 1.0
    """

    def add(rule: AnyRule) -> AnyRule:
        _TABLE.update(dict.fromkeys(operations, rule))
        if folds:
            _FOLDING.update(operations)
        return rule

    return add


def find(operation: Any) -> tuple[Rule, bool] | None:
    """The rule of a module, a function or a method's name, and whether it folds.

    A subclass of a module inherits the rule only where it inherits `forward`, too.
    """
    if not isinstance(operation, nn.Module):
        return (_TABLE[operation], operation in _FOLDING) if operation in _TABLE else None
    for base in type(operation).__mro__:
        if base in _TABLE and type(operation).forward is getattr(base, "forward", None):
            return _TABLE[base], base in _FOLDING
    return None


# Entries moved, copied or dropped, and 1-Lipschitz functions of each entry.


@register(nn.Identity, nn.Flatten, nn.Unflatten, nn.PixelShuffle, nn.PixelUnshuffle, nn.ChannelShuffle)
@register(nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.Tanh, nn.Softplus, nn.Softsign, nn.Softshrink, nn.LogSigmoid)
@register(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
@register(torch.flatten, "flatten", torch.reshape, "reshape", "view", torch.squeeze, "squeeze", "unflatten")
@register(torch.unsqueeze, "unsqueeze", torch.permute, "permute", torch.transpose, "transpose", torch.movedim)
@register("t", "contiguous", "clone", "float", "double", "to", torch.flip, "flip", torch.roll, "roll", "narrow")
@register(torch.chunk, "chunk", torch.split, "split", torch.unbind, "unbind", torch.narrow, "select")
@register("expand", "expand_as", "repeat", torch.tile, torch.sort, "sort", torch.abs, "abs", operator.abs)
@register(torch.neg, "neg", operator.neg, torch.clamp, "clamp", torch.amax, "amax", torch.amin, "amin")
@register(functional.relu, torch.relu, "relu", "relu_", functional.relu6, functional.hardtanh, functional.tanh)
@register(torch.tanh, "tanh", functional.softplus, functional.softsign, functional.softshrink)
@register(functional.logsigmoid, functional.pixel_shuffle, functional.pixel_unshuffle, torch.logsumexp, "logsumexp")
def one(shape: Shape, *arguments: Any, **options: Any) -> float:
    """1, and √r where each entry is repeated r times. The gradient of logsumexp is a softmax, so at most 1."""
    x = signals(arguments, options)[0]
    return math.sqrt(max(1.0, math.prod(shape) / math.prod(x.shape)))


@register(torch.max, "max", torch.min, "min")
def extremum(shape: Shape, x: Signal, other: Any = None, **options: Any) -> float | Join:
    """Over the input or an axis, or of two signals: `|max(a, b) − max(a', b')| ≤ max(|a − a'|, |b − b'|)`."""
    return maximum(shape, x, other) if isinstance(other, Signal | Tensor) else 1.0


@register(torch.maximum, "maximum", torch.minimum, "minimum")
def maximum(shape: Shape, a: Any, b: Any) -> Join:
    return Join(math.hypot(_spread(a, shape), _spread(b, shape)))


@register("size", "dim", "numel", "new_zeros", "new_ones", torch.zeros_like, torch.ones_like)
def shape_only(shape: Shape, x: Signal, *arguments: Any, **options: Any) -> float:
    """What depends on the shape of a signal alone."""
    return 0.0


@register(getattr)
def attribute(shape: Shape, x: Signal, name: str) -> float:
    if name in ("shape", "ndim", "dtype", "device"):
        return 0.0
    if name in ("T", "mT"):
        return 1.0
    raise InputError(f"the attribute .{name} of a tensor has no Lipschitz rule.")


@register(operator.getitem)
def item(shape: Shape, x: Signal, index: Any) -> float:
    """Slices drop entries; a list or a tensor of indices could repeat them."""
    parts = index if isinstance(index, tuple) else (index,)
    if all(part is None or part is ... or isinstance(part, int | slice) for part in parts):
        return 1.0
    raise InputError("indexing with lists or tensors may repeat entries and has no Lipschitz rule: use slices.")


@register(functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d)
def dropout(shape: Shape, x: Signal, p: float = 0.5, training: bool = True, inplace: bool = False) -> float:
    if training and p > 0:
        raise InputError("dropout in training mode is random: call .eval() on the module first.")
    return 1.0


# Sums, multiples and paths that meet.


@register(operator.add, torch.add, "add", operator.sub, torch.sub, "sub")
def add(shape: Shape, a: Any, b: Any, alpha: float = 1.0) -> Join:
    return Join(_spread(a, shape) + abs(alpha) * _spread(b, shape))


@register(torch.cat, torch.concat, torch.stack)
def concatenate(shape: Shape, tensors: Any, dim: int = 0) -> Join:
    """`‖(a, b)‖² = ‖a‖² + ‖b‖²`."""
    return Join(math.hypot(*(_bound(t) for t in tensors)))


@register(operator.mul, torch.mul, "mul")
def multiply(shape: Shape, a: Any, b: Any) -> float:
    x, factor = (a, b) if isinstance(a, Signal) else (b, a)
    if isinstance(factor, Signal):
        raise InputError("a product of two signals is not globally Lipschitz.")
    return _largest(factor) * _repeats(x, shape)


@register(operator.truediv, torch.div, "div")
def divide(shape: Shape, a: Any, b: Any) -> float:
    if isinstance(b, Signal):
        raise InputError("a division by a signal is not globally Lipschitz.")
    return _largest(1 / torch.as_tensor(b, dtype=torch.float64)) * _repeats(a, shape)


@register(torch.mean, "mean")
def mean(shape: Shape, x: Signal, *arguments: Any, **options: Any) -> float:
    """The mean of r entries: 1/√r."""
    return math.sqrt(math.prod(shape) / math.prod(x.shape))


@register(torch.sum, "sum")
def total(shape: Shape, x: Signal, *arguments: Any, **options: Any) -> float:
    """The sum of r entries: √r."""
    return math.sqrt(math.prod(x.shape) / math.prod(shape))


# Linear layers; their bias does not matter.


@register(nn.Linear)
def linear_module(shape: Shape, module: nn.Linear, x: Signal) -> Convolution:
    return linear(shape, x, module.weight)


@register(functional.linear)
def linear(shape: Shape, x: Signal, weight: Any, bias: Any = None) -> Convolution:
    return Convolution(_constant(weight)[None])


@register(torch.matmul, "matmul", operator.matmul)
def matmul(shape: Shape, a: Any, b: Any) -> Convolution:
    if isinstance(b, Tensor) and b.ndim == 2:
        return linear(shape, a, b.T)
    raise InputError("a matrix product has a Lipschitz rule only for a signal times a constant matrix.")


@register(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution_module(shape: Shape, m: Any, x: Signal) -> Convolution:
    return convolution(shape, x, m.weight, None, m.stride, m.padding, m.dilation, m.groups, m.padding_mode)


@register(functional.conv1d, functional.conv2d, functional.conv3d)
def convolution(
    shape: Shape,
    x: Signal,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    mode: Any = "zeros",
) -> Convolution:
    w = _constant(weight)
    outputs, inputs, *kernel = w.shape
    dilations = _each(dilation, kernel)
    if padding == "valid":
        padding = 0
    if padding == "same":
        padding = tuple(d * (k - 1) // 2 for d, k in zip(dilations, kernel, strict=True))
    return Convolution(
        w.reshape(groups, outputs // groups, inputs, *kernel),
        size=x.shape[2:],
        out=shape[2:],
        stride=_each(stride, kernel),
        padding=_each(padding, kernel),
        dilation=dilations,
        padding_mode=mode,
    )


@register(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
def transposed_module(shape: Shape, m: Any, x: Signal, output_size: Any = None) -> Convolution:
    return transposed(shape, x, m.weight, None, m.stride, m.padding, m.output_padding, m.groups, m.dilation)


@register(functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)
def transposed(
    shape: Shape,
    x: Signal,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Convolution:
    """The adjoint of the convolution from the output's shape to the input's."""
    w = _constant(weight)
    inputs, outputs, *kernel = w.shape
    return Convolution(
        w.reshape(groups, inputs // groups, outputs, *kernel),
        size=shape[2:],
        out=x.shape[2:],
        stride=_each(stride, kernel),
        padding=_each(padding, kernel),
        dilation=_each(dilation, kernel),
        adjoint=True,
    )


@register(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, folds=True)
def batch_norm_module(shape: Shape, m: Any, x: Signal) -> Convolution:
    return batch_norm(shape, x, m.running_mean, m.running_var, m.weight, m.bias, m.training, 0.0, m.eps)


@register(functional.batch_norm, folds=True)
def batch_norm(
    shape: Shape,
    x: Signal,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Convolution:
    """`γ / √(v + ε)` for each channel, folded into the linear layer before it."""
    if training or running_var is None:
        raise InputError(
            "batch normalisation by the statistics of the batch has no Lipschitz rule: call .eval() first."
        )
    scale = (_constant(running_var) + eps).rsqrt()
    if weight is not None:
        scale = scale * _constant(weight)
    return x.pending.scaled(scale) if x.pending else Convolution(scale[:, None, None])


# Activations.


def _slope(constant: float, *operations: Any) -> None:
    """Operations with one constant, whatever their arguments."""

    @register(*operations)
    def rule(shape: Shape, *arguments: Any, **options: Any) -> float:
        return constant


_slope(0.25, nn.Sigmoid, functional.sigmoid, torch.sigmoid, "sigmoid")
_slope(1 / 6, nn.Hardsigmoid, functional.hardsigmoid)
_slope(1.5, nn.Hardswish, functional.hardswish)
_slope(1.0998394, nn.SiLU, functional.silu)  # at 2.3994
_slope(1.0884982, nn.Mish, functional.mish)  # at 1.4906
_slope(1.0507009873554805 * 1.6732632423543772, nn.SELU, functional.selu, torch.selu)
# The Jacobian diag(p) − pp' has rows of absolute sum 2p(1 − p) ≤ ½.
_slope(0.5, nn.Softmax, nn.Softmax2d, nn.Softmin, functional.softmax, functional.softmin, torch.softmax, "softmax")


@register(nn.GELU)
def gelu_module(shape: Shape, module: nn.GELU, x: Signal) -> float:
    return gelu(shape, x, module.approximate)


@register(functional.gelu)
def gelu(shape: Shape, x: Signal, approximate: str = "none") -> float:
    """`Φ(√2) + √2 φ(√2)`, the slope at √2; the approximation by tanh is a little steeper."""
    return 1.1289042 if approximate == "none" else 1.1289931


@register(nn.LeakyReLU)
def leaky_relu_module(shape: Shape, module: nn.LeakyReLU, x: Signal) -> float:
    return leaky_relu(shape, x, module.negative_slope)


@register(functional.leaky_relu)
def leaky_relu(shape: Shape, x: Signal, negative_slope: float = 0.01, inplace: bool = False) -> float:
    return max(1.0, abs(negative_slope))


@register(nn.ELU)
def elu_module(shape: Shape, module: nn.ELU, x: Signal) -> float:
    return elu(shape, x, module.alpha)


@register(functional.elu)
def elu(shape: Shape, x: Signal, alpha: float = 1.0, inplace: bool = False) -> float:
    return max(1.0, abs(alpha))


@register(nn.PReLU)
def prelu_module(shape: Shape, module: nn.PReLU, x: Signal) -> float:
    return prelu(shape, x, module.weight)


@register(functional.prelu, torch.prelu)
def prelu(shape: Shape, x: Signal, weight: Any) -> float:
    return max(1.0, _largest(_constant(weight)))


@register(nn.LogSoftmax)
def log_softmax_module(shape: Shape, module: nn.LogSoftmax, x: Signal) -> float:
    return log_softmax(shape, x, module.dim)


@register(functional.log_softmax, torch.log_softmax, "log_softmax")
def log_softmax(shape: Shape, x: Signal, dim: int | None = None, *arguments: Any, **options: Any) -> float:
    """The Jacobian `I − 1p'` is an oblique projection of norm `√n ‖p‖ ≤ √n`."""
    return math.sqrt(max(shape) if dim is None else shape[dim])


# Pooling and padding, which act along each axis apart.


@register(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
def max_pool_module(shape: Shape, m: Any, x: Signal) -> float:
    return max_pool(shape, x, m.kernel_size, m.stride, m.padding, m.dilation)


@register(functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)
@register(torch.max_pool1d, torch.max_pool2d, torch.max_pool3d)
def max_pool(
    shape: Shape, x: Signal, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, **options: Any
) -> float:
    """The root of how many windows one input can win."""
    size = x.shape[2:]
    kernel = _each(kernel_size, size)
    strides = _each(kernel if stride in (None, []) else stride, size)
    windows = 1
    for n, out, k, s, p, d in zip(
        size, shape[2:], kernel, strides, _each(padding, size), _each(dilation, size), strict=True
    ):
        positions = s * torch.arange(out)[:, None] - p + d * torch.arange(k)
        windows *= int(torch.bincount(positions[(positions >= 0) & (positions < n)], minlength=n).max())
    return math.sqrt(windows)


@register(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)
def adaptive_max_pool_module(shape: Shape, m: Any, x: Signal) -> float:
    return adaptive_max_pool(shape, x)


@register(functional.adaptive_max_pool1d, functional.adaptive_max_pool2d, functional.adaptive_max_pool3d)
def adaptive_max_pool(shape: Shape, x: Signal, *arguments: Any, **options: Any) -> float:
    """Window i of m covers `⌊in/m⌋ … ⌈(i+1)n/m⌉ − 1`."""
    windows = 1
    for n, out in zip(x.shape[2:], shape[2:], strict=True):
        covered = [p for i in range(out) for p in range(i * n // out, -(-(i + 1) * n // out))]
        windows *= int(torch.bincount(torch.tensor(covered)).max())
    return math.sqrt(windows)


@register(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
def average_pool_module(shape: Shape, m: Any, x: Signal) -> float:
    divisor = getattr(m, "divisor_override", None)
    return average_pool(shape, x, m.kernel_size, m.stride, m.padding, m.ceil_mode, m.count_include_pad, divisor)


@register(functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)
def average_pool(
    shape: Shape,
    x: Signal,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> float:
    """The norm of the window weights, a product of one matrix for each axis."""
    size = x.shape[2:]
    kernel = _each(kernel_size, size)
    strides = _each(kernel if stride in (None, []) else stride, size)
    norm = 1.0 if divisor_override is None else 1.0 / abs(divisor_override)
    for n, k, s, p in zip(size, kernel, strides, _each(padding, size), strict=True):
        inputs = torch.eye(n, dtype=torch.float64)[:, None, :, None]
        sums = None if divisor_override is None else 1
        pooled = functional.avg_pool2d(inputs, (k, 1), (s, 1), (p, 0), ceil_mode, count_include_pad, sums)
        norm *= fourier(Convolution(pooled.reshape(1, n, -1)))
    return norm


@register(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
def adaptive_average_pool_module(shape: Shape, m: Any, x: Signal) -> float:
    return adaptive_average_pool(shape, x)


@register(functional.adaptive_avg_pool1d, functional.adaptive_avg_pool2d, functional.adaptive_avg_pool3d)
def adaptive_average_pool(shape: Shape, x: Signal, *arguments: Any) -> float:
    norm = 1.0
    for n, out in zip(x.shape[2:], shape[2:], strict=True):
        pooled = functional.adaptive_avg_pool1d(torch.eye(n, dtype=torch.float64)[:, None], out)
        norm *= fourier(Convolution(pooled.reshape(1, n, out)))
    return norm


@register(nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d, nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d)
def constant_pad_module(shape: Shape, module: Any, x: Signal) -> float:
    return pad(shape, x, module.padding)


@register(nn.ReflectionPad1d, nn.ReflectionPad2d, nn.ReflectionPad3d)
def reflection_pad_module(shape: Shape, module: Any, x: Signal) -> float:
    return pad(shape, x, module.padding, "reflect")


@register(nn.ReplicationPad1d, nn.ReplicationPad2d, nn.ReplicationPad3d)
def replication_pad_module(shape: Shape, module: Any, x: Signal) -> float:
    return pad(shape, x, module.padding, "replicate")


@register(nn.CircularPad1d, nn.CircularPad2d, nn.CircularPad3d)
def circular_pad_module(shape: Shape, module: Any, x: Signal) -> float:
    return pad(shape, x, module.padding, "circular")


@register(functional.pad)
def pad(shape: Shape, x: Signal, pad: Any, mode: Any = "constant", value: Any = None) -> float:
    """How often an input is repeated, along each axis, the last axis first."""
    mode, norm = "zeros" if mode == "constant" else mode, 1.0
    for axis in range(len(pad) // 2):
        norm *= padding_norm(x.shape[-1 - axis], pad[2 * axis], pad[2 * axis + 1], mode)
    return norm


# What has no useful constant.


@register(nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.RMSNorm)
@register(nn.LocalResponseNorm, functional.layer_norm, functional.group_norm, functional.instance_norm)
@register(functional.rms_norm, functional.local_response_norm, functional.normalize)
def own_statistics(shape: Shape, *arguments: Any, **options: Any) -> float:
    raise InputError(
        "it divides by a statistic of its own input, so that no better constant than 1/√ε holds everywhere: "
        "use batch normalisation, whose statistics are fixed."
    )


@register(nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder)
@register(nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
@register(functional.scaled_dot_product_attention, functional.multi_head_attention_forward)
def attention(shape: Shape, *arguments: Any, **options: Any) -> float:
    raise InputError(
        "dot-product attention multiplies its input with itself and is not globally Lipschitz "
        "(Kim, Papamakarios and Mnih, 2021)."
    )


def signals(*values: Any) -> list[Signal]:
    """The signals in arguments, however nested."""
    found: list[Signal] = []
    for value in values:
        if isinstance(value, Signal):
            found.append(value)
        elif isinstance(value, tuple | list):
            found += signals(*value)
        elif isinstance(value, dict):
            found += signals(*value.values())
    return found


def _bound(value: Any) -> float:
    return value.bound if isinstance(value, Signal) else 0.0


def _spread(value: Any, shape: Shape) -> float:
    """The bound of an operand after broadcasting to `shape`."""
    return _bound(value) * _repeats(value, shape) if isinstance(value, Signal) else 0.0


def _repeats(x: Signal, shape: Shape) -> float:
    return math.sqrt(math.prod(shape) / math.prod(x.shape))


def _constant(value: Any) -> Tensor:
    if isinstance(value, Signal):
        raise InputError("weights that depend on the input have no Lipschitz rule.")
    if value.is_complex():
        raise InputError("complex weights have no Lipschitz rule.")
    tensor: Tensor = value.detach().double().cpu()
    return tensor


def _largest(value: Any) -> float:
    return float(torch.as_tensor(value, dtype=torch.float64).abs().max())


def _each(value: Any, axes: Any) -> Shape:
    """A setting for each axis, from one for all or one for each."""
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    return values * len(axes) if len(values) == 1 else values
