"""The Lipschitz constant (ℓ2 → ℓ2) of every operation a network may contain: one table, operation → rule.

An operation is one of ATen, as `torch.export` records it, or a module class that is taken as a whole. A rule receives
the shape of the output and the arguments (for a module class: the module, then its input), where each tensor that
depends on the network's input is a `Signal`. It returns

- a number: the constant of an operation on one signal,
- a `Convolution`: an operation on one signal whose norm the chosen method computes,
- a `Join`: the bound of the output itself, for an operation that brings several signals together,
- a `Moved`: where each entry of the output comes from, for an operation that only moves entries,

or raises `InputError` with the reason why the operation has no useful constant. Beside it stands how the rows of a
batch pass through (`smoothcert.lipschitz.signals`). An operation that is not in the table is an error; `register` adds
one.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor, nn
from torch._ops import OpOverload, OpOverloadPacket
from torch.nn import functional

from smoothcert.errors import InputError
from smoothcert.lipschitz.contraction import Contraction
from smoothcert.lipschitz.signals import (
    Padding,
    RowRule,
    Shape,
    Signal,
    along,
    bound_of,
    entrywise,
    last_axes,
    repeats,
    signals,
    spread,
    together,
    within,
)
from smoothcert.lipschitz.spectral import Convolution, PaddingMode, fourier

aten = torch.ops.aten


@dataclass(frozen=True)
class Join:
    """The Lipschitz bound of a value that several paths lead to."""

    bound: float


@dataclass(frozen=True)
class Moved:
    """For each entry of each output the entry of the input that it is, counted from 1; 0 is a constant."""

    sources: tuple[Tensor, ...]
    several: bool = False
    padding: Padding | None = None


Rule = Callable[..., "float | Convolution | Join | Moved | None"]
AnyRule = TypeVar("AnyRule", bound=Rule)


@dataclass(frozen=True)
class Entry:
    """A rule, how rows pass through its operation, and what it can fold into where that stands before it.

    A rule that folds receives the operation before it as `Signal.pending`, and returns None where the two do not go
    together.
    """

    rule: Rule
    rows: RowRule
    folds: type | None = None


_TABLE: dict[Any, Entry] = {}


def register(*operations: Any, rows: RowRule = within, folds: type | None = None) -> Callable[[AnyRule], AnyRule]:
    """Give operations a rule: ATen operations (`torch.ops.aten.…`, with all their overloads or one), module classes.

    The rule answers for the rows of a batch, too: unless `rows` says otherwise, the first axis is the batch and the
    operation must treat each row by itself. A module class is taken at its word for its own instances alone, not for
    those of a subclass, one with hooks, or one whose `forward` was replaced.

    >>> @register(torch.ops.aten.asinh)
    ... def inverse_hyperbolic_sine(shape, x):
    ...     return 1.0
    """
    found: list[Any] = []
    for operation in operations:
        if isinstance(operation, OpOverloadPacket):
            found += overloads(operation)
        elif isinstance(operation, OpOverload) or (inspect.isclass(operation) and issubclass(operation, nn.Module)):
            found.append(operation)
        else:
            raise InputError(
                "a rule is for an ATen operation such as torch.ops.aten.sin or for a module class, not for "
                f"{operation!r}."
            )

    def add(rule: AnyRule) -> AnyRule:
        _TABLE.update(dict.fromkeys(found, Entry(rule, rows, folds)))
        return rule

    return add


def overloads(operation: Any) -> list[Any]:
    """An operation in its variants by arguments, without those that write to them."""
    found = [operation]
    if isinstance(operation, OpOverloadPacket):
        packet: Any = operation
        found = [getattr(packet, name) for name in packet.overloads()]
    return [variant for variant in found if not variant._schema.is_mutable]


def find(operation: Any) -> Entry | None:
    """The entry of an ATen operation or of a module class, of exactly this one."""
    return _TABLE.get(operation)


def operations() -> frozenset[Any]:
    """All ATen operations with a rule."""
    return frozenset(operation for operation in _TABLE if isinstance(operation, OpOverload))


# Entries moved, copied or dropped. The operation itself says which: it is run on numbered entries.

_MOVES = (
    aten.view.default, aten._unsafe_view, aten.reshape, aten.flatten.using_ints, aten.unflatten.int, aten.permute,
    aten.transpose.int, aten.t, aten.unsqueeze, aten.squeeze, aten.clone, aten.alias, aten.detach, aten.contiguous,
    aten.slice.Tensor, aten.select.int, aten.narrow, aten.split, aten.split_with_sizes, aten.chunk, aten.unbind,
    aten.flip, aten.roll, aten.expand, aten.repeat, aten.tile, aten.repeat_interleave.self_int,
    aten.index.Tensor, aten.index_select.default, aten.gather.default,
    aten.unfold, aten.im2col, aten.tril, aten.triu, aten.diagonal.default,
    aten.pixel_shuffle, aten.pixel_unshuffle, aten.channel_shuffle,
)  # fmt: skip

_NEAREST = (
    aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d,
    aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d, aten._upsample_nearest_exact3d,
)  # fmt: skip


def moved(operation: Any, shape: Shape, x: Any, *arguments: Any, **options: Any) -> Moved:
    """Each entry of the output is one of the input: the constant is the root of how often an entry is used."""
    if signals(arguments, options) or not isinstance(x, Signal):
        raise InputError("where it moves entries to depends on the input.")
    sources = operation(_numbered(x), *_on_cpu(arguments), **options)
    several = not isinstance(sources, Tensor)
    return Moved(tuple(sources) if several else (sources,), several)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(map(_on_cpu, value))
    return value.cpu() if isinstance(value, Tensor) else value


def _numbered(x: Signal) -> Tensor:
    return torch.arange(1, math.prod(x.shape) + 1, dtype=torch.float64).reshape(x.shape)


for _operation in [variant for operation in _MOVES for variant in overloads(operation)]:
    register(_operation)(partial(moved, _operation))


def nearest(operation: Any, shape: Shape, x: Signal, *arguments: Any, **options: Any) -> Moved:
    """The nearest entries by the places that torch computes in float64, or in float32 as for all coarser types.

    They differ now and then by an entry; what is used more often counts. float32 has the numbers in two parts.
    """
    numbers = _numbered(x)
    high, low = ((numbers // 4096).float(), (numbers % 4096).float())
    fine = operation(numbers, *arguments, **options)
    coarse = 4096 * operation(high, *arguments, **options).double() + operation(low, *arguments, **options)
    return Moved((max(fine, coarse, key=copies),))


for _operation in [variant for operation in _NEAREST for variant in overloads(operation)]:
    register(_operation)(partial(nearest, _operation))


@register(aten.constant_pad_nd.default)
def constant_pad(shape: Shape, x: Signal, pad: Sequence[int], value: Any = 0) -> Moved:
    if isinstance(value, Signal):
        raise InputError("what it pads with depends on the input.")
    return _padded(x, pad, "constant")


@register(aten.pad.default)
def pad(shape: Shape, x: Signal, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Moved:
    return _padded(x, pad, mode)


@register(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
def reflection_pad(shape: Shape, x: Signal, pad: Sequence[int]) -> Moved:
    return _padded(x, pad, "reflect")


@register(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)
def replication_pad(shape: Shape, x: Signal, pad: Sequence[int]) -> Moved:
    return _padded(x, pad, "replicate")


def _padded(x: Signal, pad: Sequence[int], mode: str) -> Moved:
    sources = functional.pad(_numbered(x), list(pad), mode)
    pairs = tuple(zip(pad[::2], pad[1::2], strict=True))
    kind: Any = "zeros" if mode == "constant" else mode
    return Moved((sources,), padding=Padding(x.shape, pairs, kind, copies(sources)))


def copies(sources: Tensor) -> float:
    """The norm of a map that moves entries: the root of how often one is used."""
    used = sources[sources > 0].long()
    return math.sqrt(int(torch.bincount(used).max())) if used.numel() else 0.0


# Sums, multiples and paths that meet.


@register(aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, rows=entrywise)
def add(shape: Shape, a: Any, b: Any, alpha: float = 1.0) -> Join:
    return Join(spread(a, shape) + abs(alpha) * spread(b, shape))


@register(aten.rsub.Tensor, aten.rsub.Scalar, rows=entrywise)
def subtract_from(shape: Shape, a: Any, b: Any, alpha: float = 1.0) -> Join:
    return add(shape, b, a, alpha)


@register(aten.mul.Tensor, aten.mul.Scalar, rows=entrywise)
def multiply(shape: Shape, a: Any, b: Any) -> float:
    x, factor = (a, b) if isinstance(a, Signal) else (b, a)
    if isinstance(factor, Signal):
        raise InputError("a product of two signals is not globally Lipschitz.")
    return _largest(factor) * repeats(x, shape)


@register(aten.div.Tensor, aten.div.Scalar, rows=entrywise)
def divide(shape: Shape, a: Any, b: Any) -> float:
    if isinstance(b, Signal):
        raise InputError("a division by a signal is not globally Lipschitz.")
    return _largest(1 / torch.as_tensor(b, dtype=torch.float64)) * repeats(a, shape)


@register(aten.reciprocal.default, rows=entrywise)
def reciprocal(shape: Shape, x: Signal) -> float:
    return divide(shape, 1.0, x)


@register(aten.maximum.default, aten.minimum.default, aten.max.other, aten.min.other, rows=entrywise)
@register(aten.clamp.default, aten.clamp.Tensor, aten.clamp_min, aten.clamp_max, rows=entrywise)
def extremum(shape: Shape, *values: Any, **options: Any) -> Join:
    """Of the values, or one of them held between others: `|max(a, b) − max(a', b')| ≤ max(|a − a'|, |b − b'|)`."""
    return Join(math.hypot(*(spread(value, shape) for value in signals(values, options))))


def _where_rows(shape: Shape, condition: Tensor, a: Any, b: Any) -> Tensor:
    return torch.where(condition.cpu(), _rows_of(a, shape), _rows_of(b, shape))


@register(aten.where.self, rows=_where_rows)
def where(shape: Shape, condition: Any, a: Any, b: Any) -> Join:
    return Join(math.hypot(spread(a, shape), spread(b, shape)))


@register(aten.masked_fill.Scalar, aten.masked_fill.Tensor, rows=entrywise)
def masked_fill(shape: Shape, x: Any, mask: Any, value: Any) -> Join:
    return Join(math.hypot(spread(x, shape), spread(value, shape)))


@register(aten.cat.default, rows=lambda shape, tensors, dim=0: torch.cat([_rows_of(t) for t in tensors], dim))
@register(aten.stack.default, rows=lambda shape, tensors, dim=0: torch.stack([_rows_of(t) for t in tensors], dim))
def concatenate(shape: Shape, tensors: Any, dim: int = 0) -> Join:
    """`‖(a, b)‖² = ‖a‖² + ‖b‖²`."""
    return Join(math.hypot(*(bound_of(t) for t in tensors)))


def _scattered(operation: Any, shape: Shape, x: Any, part: Any, *to: int) -> Tensor:
    rows: Tensor = operation(_rows_of(x).contiguous(), _rows_of(part), *to)
    return rows


@register(aten.slice_scatter.default, rows=partial(_scattered, aten.slice_scatter))
@register(aten.select_scatter.default, rows=partial(_scattered, aten.select_scatter))
def scatter(shape: Shape, x: Any, part: Any, *to: int) -> Join:
    """A part of a tensor replaced by another tensor."""
    return Join(math.hypot(bound_of(x), bound_of(part)))


@register(aten.copy.default, rows=lambda shape, x, values, *options: entrywise(shape, values))
def copy(shape: Shape, x: Any, values: Any, non_blocking: bool = False) -> Join:
    return Join(spread(values, shape))


@register(aten.index_put.default, rows=lambda shape, x, *arguments: x.rows)
def put_constants(shape: Shape, x: Any, indices: Any, values: Any, accumulate: bool = False) -> float:
    if not isinstance(x, Signal) or signals(indices, values):
        raise InputError("entries that depend on the input are written by indices.")
    return 1.0


@register(aten.sum.default, aten.sum.dim_IntList, rows=along)
def total(shape: Shape, x: Signal, *arguments: Any, **options: Any) -> float:
    """The sum of r entries: √r."""
    return math.sqrt(math.prod(x.shape) / math.prod(shape))


@register(aten.mean.default, aten.mean.dim, rows=along)
def mean(shape: Shape, x: Signal, *arguments: Any, **options: Any) -> float:
    """The mean of r entries: 1/√r."""
    return math.sqrt(math.prod(shape) / math.prod(x.shape))


@register(aten.cumsum.default, rows=along)
def running_sum(shape: Shape, x: Signal, dim: int, **options: Any) -> float:
    """The norm of the triangular matrix of n×n ones, `1 / (2 sin(π / (4n + 2)))`, with a margin for rounding."""
    return (1 + 1e-12) / (2 * math.sin(math.pi / (4 * (shape[dim] if shape else 1) + 2)))


# Linear layers; a constant bias does not matter.


def _linear_rows(shape: Shape, x: Any, weight: Any, bias: Any = None) -> Tensor:
    return together((-1,), shape, x) if isinstance(x, Signal) else entrywise(shape, bias)


@register(aten.linear.default, rows=_linear_rows)
def linear(shape: Shape, x: Any, weight: Any, bias: Any = None) -> Convolution | Join:
    if not isinstance(x, Signal) and not isinstance(weight, Signal):
        return Join(spread(bias, shape))
    _no_bias(bias)
    return Convolution(_constant(weight).reshape(1, -1, weight.shape[-1]))


def _product_rows(shape: Shape, a: Any, b: Any) -> Tensor:
    if isinstance(a, Signal):
        lines = together((-1,), (*a.shape[:-1], 1), a)
        return (lines.squeeze(-1) if b.ndim == 1 else lines).expand(shape)
    columns = together((-2,), (*b.shape[:-2], 1, b.shape[-1]), b) if len(b.shape) > 1 else together((0,), (1,), b)
    return (columns.squeeze(-2) if a.ndim == 1 and columns.ndim > 1 else columns).expand(shape)


@register(aten.matmul.default, aten.mm.default, aten.bmm.default, rows=_product_rows)
def matmul(shape: Shape, a: Any, b: Any) -> Convolution:
    """A signal times constant matrices: the largest of their norms, and the root of how often the signal is used."""
    if isinstance(a, Signal) and isinstance(b, Signal):
        raise InputError(f"a matrix product of two signals, {ATTENTION}")
    x, matrices = (a, _constant(b).mT if b.ndim > 1 else _constant(b)[None]) if isinstance(a, Signal) else (b, a)
    if x is b:
        matrices = _constant(a) if a.ndim > 1 else _constant(a)[None]
    batches = matrices.shape[:-2]
    inner = x.shape[:-1] if x is a and b.ndim == 1 else x.shape[:-2] if len(x.shape) > 1 else ()
    whole: Shape = aten.broadcast_tensors([torch.empty(batches), torch.empty(inner)])[0].shape
    used = math.prod(whole) / max(math.prod(inner), 1)
    return Convolution(math.sqrt(used) * matrices.reshape(-1, *matrices.shape[-2:]))


def _sum_rows(shape: Shape, bias: Any, a: Any, b: Any, **options: Any) -> Tensor:
    return _product_rows(shape, a, b) if signals(a, b) else entrywise(shape, bias)


@register(aten.addmm.default, aten.baddbmm.default, rows=_sum_rows)
def matmul_with_bias(
    shape: Shape, bias: Any, a: Any, b: Any, *, beta: float = 1.0, alpha: float = 1.0
) -> Convolution | Join:
    if not signals(a, b):
        return Join(abs(beta) * spread(bias, shape))
    _no_bias(bias)
    matrices = matmul(shape, a, b)
    return Convolution(alpha * matrices.weight)


_ZEROS: PaddingMode = "zeros"


@register(
    aten.einsum.default, rows=lambda shape, equation, operands, **_: Contraction.of(equation, operands).rows(shape)
)
def einsum(shape: Shape, equation: str, operands: Sequence[Any], path: Any = None) -> Convolution:
    if len(signals(operands)) > 1:
        raise InputError(f"a product of two signals, {ATTENTION}")
    return Convolution(Contraction.of(equation, operands).matrices())


@register(aten.convolution.default, folds=Padding)
def convolution(
    shape: Shape,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Convolution | None:
    """With the zeros, reflections, … around its input where a padding stands before it.

    A transposed convolution is the adjoint of the convolution from the output's shape to the input's.
    """
    _no_bias(bias)
    if not isinstance(x, Signal):
        raise InputError("weights that depend on the input have no Lipschitz rule.")
    w, mode = _constant(weight), _ZEROS
    first, second, *kernel = w.shape
    before = _each(padding, kernel)
    size, out = (shape[2:], x.shape[2:]) if transposed else (x.shape[2:], shape[2:])
    if isinstance(x.pending, Padding):
        pairs = (((0, 0),) * len(kernel) + x.pending.pairs[::-1])[-len(kernel) :]
        mode = x.pending.mode
        if (
            transposed
            or len(x.pending.pairs) > len(kernel)
            or any(count < 0 for pair in pairs for count in pair)
            or (mode != _ZEROS and any(before))
        ):
            return None
        size = x.pending.size[2:]
        before = tuple(a + b for a, (b, _) in zip(before, pairs, strict=True))
    return Convolution(
        w.reshape(groups, first // groups, second, *kernel),
        size=tuple(size),
        out=tuple(out),
        stride=_each(stride, kernel),
        padding=before,
        dilation=_each(dilation, kernel),
        padding_mode=mode,
        adjoint=transposed,
    )


@register(aten._native_batch_norm_legit_no_training.default, rows=entrywise, folds=Convolution)
def batch_norm(
    shape: Shape, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> Convolution | None:
    """`γ / √(v + ε)` for each channel, folded into the linear layer before it."""
    if signals(weight, bias, mean, variance):
        raise InputError("weights that depend on the input have no Lipschitz rule.")
    squares = _constant(variance) + eps
    if not bool((squares > 0).all()):
        raise InputError("a variance plus eps is not positive: train or load the module again.")
    scale = squares.rsqrt()
    if weight is not None:
        scale = scale * _constant(weight)
    if x.pending is None:
        return Convolution(scale[:, None, None])
    if len(x.shape) != 2 + len(x.pending.size):  # the channels are not the layer's outputs
        return None
    folded: Convolution = x.pending.scaled(scale)
    return folded


@register(aten.instance_norm.default, rows=entrywise)
def instance_norm(
    shape: Shape,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Convolution | None:
    return own_statistics() if use_input_stats else batch_norm(shape, x, weight, bias, mean, variance, momentum, eps)


@register(aten._native_batch_norm_legit, aten.native_batch_norm)
def batch_statistics(*arguments: Any, **options: Any) -> NoReturn:
    raise InputError("batch normalisation by the statistics of the batch has no Lipschitz rule: call .eval() first.")


# Functions of each entry: their steepest slope.


def _slope(constant: float, *operations: Any) -> None:
    """Operations with one constant, whatever their arguments, which must be constants."""

    @register(*operations, rows=entrywise)
    def rule(shape: Shape, x: Any, *arguments: Any, **options: Any) -> float:
        if not isinstance(x, Signal) or signals(arguments, options):
            raise InputError("arguments that depend on the input have no Lipschitz rule.")
        return constant * repeats(x, shape)


_slope(1.0, aten.relu.default, aten.relu6.default, aten.hardtanh.default, aten.tanh.default, aten.abs.default)
_slope(1.0, aten.neg.default, aten.positive.default, aten.log_sigmoid.default, aten.sin.default, aten.cos.default)
_slope(1.0, aten.atan.default, aten._to_copy.default)
_slope(0.25, aten.sigmoid.default)
_slope(1 / 6 * (1 + 1e-15), aten.hardsigmoid.default)
_slope(1.5, aten.hardswish.default)
_slope(1.0998394, aten.silu.default)  # at 2.3994
_slope(1.0884982, aten.mish.default)  # at 1.4906
_slope(1.1283792, aten.erf.default)  # 2/√π, at 0
_slope(1.7580994, aten.selu.default)  # its scale times its alpha, just below 0


@register(aten.gelu.default, rows=entrywise)
def gelu(shape: Shape, x: Signal, *, approximate: str = "none") -> float:
    """`Φ(√2) + √2 φ(√2)`, the slope at √2; the approximation by tanh is a little steeper."""
    return 1.1289042 if approximate == "none" else 1.1289931


@register(aten.leaky_relu.default, rows=entrywise)
def leaky_relu(shape: Shape, x: Signal, negative_slope: float = 0.01) -> float:
    return max(1.0, abs(negative_slope))


@register(aten.elu.default, rows=entrywise)
def elu(shape: Shape, x: Signal, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> float:
    """`s x` above 0 and `α s (e^{tx} − 1)` below."""
    if input_scale < 0:
        raise InputError("its exponential grows without end.")
    return max(abs(scale), abs(alpha * scale * input_scale))


@register(aten.celu.default, rows=entrywise)
def celu(shape: Shape, x: Signal, alpha: float = 1.0) -> float:
    """`α (e^{x/α} − 1)` below 0."""
    if alpha < 0:
        raise InputError("its exponential grows without end.")
    return 1.0


@register(aten.softplus.default, rows=entrywise)
def softplus(shape: Shape, x: Signal, beta: float = 1.0, threshold: float = 20.0) -> float:
    """Above the threshold torch takes x itself, which jumps by `log(1 + e^{−t}) / t` of it: from 37 on by less than
    float64 rounds. Below it computes e^{βx}, which float32 holds up to e^88."""
    if not 37 <= threshold <= 80:
        raise InputError(
            f"it jumps at its threshold of {threshold:g}, or overflows before it: use a threshold from 37 to 80, as in "
            "nn.Softplus(threshold=40)."
        )
    return 1.0


@register(aten.prelu.default, aten._prelu_kernel.default, rows=entrywise)
def prelu(shape: Shape, x: Any, weight: Any) -> float:
    return max(1.0, _largest(_constant(weight)))


@register(nn.Softsign, nn.Softshrink, nn.Tanhshrink)
def shrink(shape: Shape, module: nn.Module, x: Signal) -> float:
    """Written with quotients or conditions, and yet of slope 1 at most."""
    return 1.0


# Functions along axes.


@register(aten.sort.default, rows=lambda shape, x, dim=-1, *_: along(shape, x, dim))
@register(aten.sort.stable, rows=lambda shape, x, *, dim=-1, **_: along(shape, x, dim))
@register(aten.amax.default, aten.amin.default, aten.max.default, aten.min.default, rows=along)
@register(aten.max.dim, aten.min.dim, aten.median.dim, aten.logsumexp.default, rows=along)
def one(shape: Shape, x: Signal, *arguments: Any, **options: Any) -> float:
    """Order statistics, and logsumexp, whose gradient is a softmax."""
    return 1.0


@register(aten.kthvalue.default, rows=lambda shape, x, k, dim=-1, *_: along(shape, x, dim))
def kth_value(shape: Shape, x: Signal, *arguments: Any) -> float:
    return 1.0


@register(aten.topk.default, rows=lambda shape, x, k, dim=-1, *_: along(shape, x, dim))
def largest_values(shape: Shape, x: Signal, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> float:
    if not sorted:
        raise InputError("without sorted=True the order of its values jumps with the input.")
    return 1.0


@register(aten.linalg_vector_norm.default, rows=lambda shape, x, ord=2, dim=None, *_, **__: along(shape, x, dim))
def vector_norm(shape: Shape, x: Signal, ord: float = 2.0, *arguments: Any, **options: Any) -> float:
    """A norm has the constant of its ratio to the ℓ2 norm: `n^(1/p − 1/2)`, and 1 for p ≥ 2."""
    if ord < 1:
        raise InputError("with an order below 1 it is no norm.")
    return math.pow(math.prod(x.shape) / math.prod(shape), max(1 / ord - 0.5, 0.0))


@register(aten.softmax.int, aten._softmax.default, rows=along)
def softmax(shape: Shape, x: Signal, *arguments: Any, **options: Any) -> float:
    """The Jacobian diag(p) − pp' has rows of absolute sum 2p(1 − p) ≤ ½."""
    return 0.5


@register(aten.log_softmax.int, aten._log_softmax.default, rows=along)
def log_softmax(shape: Shape, x: Signal, dim: int, *arguments: Any, **options: Any) -> float:
    """The Jacobian `I − 1p'` is an oblique projection of norm `√n ‖p‖ ≤ √n`."""
    return math.sqrt(shape[dim])


# Pooling and interpolation, which act along each of the last axes apart.


def max_pool(
    axes: int,
    shape: Shape,
    x: Signal,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> float:
    """The root of how many windows one input can win."""
    size, out = x.shape[-axes:], shape[-axes:]
    kernel = _each(kernel_size, size)
    strides = _each(stride or kernel, size)
    windows = 1
    for n, m, k, s, p, d in zip(size, out, kernel, strides, _each(padding, size), _each(dilation, size), strict=True):
        positions = s * torch.arange(m)[:, None] - p + d * torch.arange(k)
        windows *= int(torch.bincount(positions[(positions >= 0) & (positions < n)], minlength=n).max())
    return math.sqrt(windows)


register(aten.max_pool2d_with_indices.default, aten.max_pool2d.default, rows=last_axes(2))(partial(max_pool, 2))
register(aten.max_pool3d_with_indices.default, aten.max_pool3d.default, rows=last_axes(3))(partial(max_pool, 3))


@register(aten.adaptive_max_pool2d.default, rows=last_axes(2))
@register(aten.adaptive_max_pool3d.default, rows=last_axes(3))
def adaptive_max_pool(shape: Shape, x: Signal, output_size: Sequence[int]) -> float:
    """Window i of m covers `⌊in/m⌋ … ⌈(i+1)n/m⌉ − 1`."""
    windows = 1
    for n, out in zip(x.shape[-len(output_size) :], shape[-len(output_size) :], strict=True):
        covered = [p for i in range(out) for p in range(i * n // out, -(-(i + 1) * n // out))]
        windows *= int(torch.bincount(torch.tensor(covered)).max())
    return math.sqrt(windows)


def average_pool(
    axes: int,
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
    size = x.shape[-axes:]
    kernel = _each(kernel_size, size)
    norm = 1.0 if divisor_override is None else 1.0 / abs(divisor_override)
    for n, k, s, p in zip(size, kernel, _each(stride or kernel, size), _each(padding, size), strict=True):
        inputs = torch.eye(n, dtype=torch.float64)[:, None, :, None]
        sums = None if divisor_override is None else 1
        pooled = functional.avg_pool2d(inputs, (k, 1), (s, 1), (p, 0), ceil_mode, count_include_pad, sums)
        norm *= fourier(Convolution(pooled.reshape(1, n, -1)))
    return norm


register(aten.avg_pool2d.default, rows=last_axes(2))(partial(average_pool, 2))
register(aten.avg_pool3d.default, rows=last_axes(3))(partial(average_pool, 3))


@register(aten._adaptive_avg_pool2d.default, aten.adaptive_avg_pool2d.default, rows=last_axes(2))
@register(aten._adaptive_avg_pool3d.default, aten.adaptive_avg_pool3d.default, rows=last_axes(3))
def adaptive_average_pool(shape: Shape, x: Signal, output_size: Sequence[int]) -> float:
    norm = 1.0
    for n, out in zip(x.shape[-len(output_size) :], shape[-len(output_size) :], strict=True):
        pooled = functional.adaptive_avg_pool1d(torch.eye(n, dtype=torch.float64)[:, None], out)
        norm *= fourier(Convolution(pooled.reshape(1, n, out)))
    return norm


_INTERPOLATIONS = (
    aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d, aten.upsample_bicubic2d,
    aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa,
)  # fmt: skip


def interpolate(operation: Any, shape: Shape, x: Signal, *arguments: Any, **options: Any) -> float:
    """The norm of the weights, a product of one matrix for each axis.

    The weights of each axis sum to 1, so that what is constant along the other axes shows those of one.
    """
    norm = 1.0
    for axis, n in enumerate(x.shape[2:]):
        lines = torch.eye(n, dtype=torch.float64).reshape(
            n, 1, *(n if a == axis else 1 for a in range(len(x.shape) - 2))
        )
        weights = operation(lines.expand(n, 1, *x.shape[2:]).contiguous(), *arguments, **options)
        weights = weights.movedim(2 + axis, 1).flatten(2)[:, :, 0]
        norm *= fourier(Convolution(weights[None]))
    return norm


for _operation in [variant for operation in _INTERPOLATIONS for variant in overloads(operation)]:
    register(_operation)(partial(interpolate, _operation))


# What has no useful constant.

ATTENTION = "as in dot-product attention, is not globally Lipschitz (Kim, Papamakarios and Mnih, 2021)."


@register(aten.layer_norm, aten.native_layer_norm, aten.group_norm, aten.native_group_norm, aten.rms_norm)
def own_statistics(*arguments: Any, **options: Any) -> NoReturn:
    raise InputError(
        "it divides by a statistic of its own input, so that no better constant than 1/√ε holds everywhere: "
        "use batch normalisation, whose statistics are fixed."
    )


@register(aten.scaled_dot_product_attention, aten._scaled_dot_product_flash_attention_for_cpu)
def attention(*arguments: Any, **options: Any) -> NoReturn:
    raise InputError(f"its input multiplied with itself, {ATTENTION}")


def _rows_of(value: Any, shape: Shape | None = None) -> Tensor:
    """The rows of a signal, or of a constant, which belongs to none."""
    if isinstance(value, Signal):
        return value.rows if shape is None else value.rows.expand(shape)
    return torch.zeros(shape if shape is not None else value.shape, dtype=torch.int8)


def _no_bias(bias: Any) -> None:
    if isinstance(bias, Signal):
        raise InputError("a bias that depends on the input, beside the signal itself, has no Lipschitz rule.")


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
