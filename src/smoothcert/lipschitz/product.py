"""A Lipschitz bound of a whole network: its operations' bounds, combined along the graph of what ran."""

from __future__ import annotations

import math
import operator
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

from smoothcert.errors import InputError
from smoothcert.lipschitz import graph, rules, spectral, tripwire
from smoothcert.lipschitz.graph import BATCH, CHECKS, Program
from smoothcert.lipschitz.regions import Region, own_bound, regions, trusted
from smoothcert.lipschitz.rules import Join, Moved
from smoothcert.lipschitz.signals import MIXES, Padding, Signal, batch_rows, is_batch, signals
from smoothcert.lipschitz.spectral import Convolution

Norm = Callable[[Convolution], float]
Method = Literal["fourier", "gram", "power"]
_NORMS: dict[str, Norm] = {"fourier": spectral.fourier, "gram": spectral.gram, "power": spectral.power}


@dataclass(frozen=True)
class Layer:
    """One operation of the network: its norm, and its share of the product, `log norm / Σ |log norm|`."""

    name: str
    kind: str
    norm: float
    share: float


@dataclass(frozen=True)
class LastLayer:
    """The linear layer that the scores come from: `scores = weight · features + …`, in float64.

    `before` bounds the constant of the features, so that `before · ‖w_k − w_j‖` bounds that of `f_k − f_j`.
    """

    before: float
    weight: Tensor = field(repr=False, compare=False)


@dataclass(frozen=True)
class LipschitzBound:
    """An upper bound of a network's ℓ2 → ℓ2 constant; *estimated* when its norms come from power iteration.

    `last` is the last layer where that is linear and the graph was looked into, else None.
    """

    value: float
    basis: Literal["proved", "estimated"]
    layers: tuple[Layer, ...]
    last: LastLayer | None = None


def product(
    module: nn.Module,
    input_shape: Sequence[int],
    method: Method = "fourier",
    *,
    inside: bool = False,
    near: Tensor | None = None,
) -> LipschitzBound:
    """A bound of `‖f(x) − f(y)‖₂ / ‖x − y‖₂` over all inputs x, y of one shape, such as (3, 32, 32).

    Layers multiply, residual additions add, concatenations add squares; a batch normalisation (evaluation mode
    only) is folded into the layer before it; a module with a method `lipschitz_bound()` answers for itself, the whole
    network too unless its layers are asked for with `inside`. The norms are in float64 and include a margin for
    rounding; what the network itself rounds is not included.

    The graph is that of `torch.export`, compared with the module. Slopes of the module at random inputs, and near those
    of the batch `near`, are compared with the bound: one above it is a `RunError`, because a rule must be wrong.

    >>> product(nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.ReLU()), (2, 2)).basis
    'proved'
    """
    if method not in _NORMS:
        raise InputError(f"there is no method {method!r} for norms: use one of {', '.join(_NORMS)}.")
    require_evaluation(module)
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"{name} of the module is not finite: train or load it again.")
    shape = _fitting(module, _checked(input_shape))
    x = tripwire.points(module, shape, near)
    whole = not (inside and any(module.children()))
    if whole and trusted(module) is own_bound:  # what is inside need not be known
        graph.rows_alone(module, x)
        value, last, layers = own_bound((), module), None, [("itself", type(module).__name__, own_bound((), module))]
    else:
        one, many = (graph.trace(module, x[:batch].clone(), rules.operations()) for batch in (1, BATCH))
        graph.compare(one, many)
        graph.replay(module, one, many, x)
        walk = _Walk(module, many, _NORMS[method], whole)
        value, last, layers = walk.bound(), walk.last(), walk.layers
    if method != "power":
        tripwire.check(module, value, x)
    logs = [math.log(norm) if norm > 0 else 0.0 for _, _, norm in layers]
    scale = sum(map(abs, logs)) or 1.0
    shares = tuple(Layer(*entry, log / scale) for entry, log in zip(layers, logs, strict=True))
    return LipschitzBound(value, "estimated" if method == "power" else "proved", shares, last)


def require_evaluation(module: nn.Module) -> None:
    """Refuse batch normalisation and dropout in training mode: they are not the map that is certified."""
    kinds = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
    for name, part in module.named_modules():
        if part.training and isinstance(part, kinds) and getattr(part, "p", 1) > 0:
            raise InputError(f"{type(part).__name__} {name!r} is in training mode: call .eval() on the module first.")


def _checked(input_shape: Sequence[int]) -> tuple[int, ...]:
    try:
        shape = tuple(operator.index(n) for n in input_shape)
    except TypeError:
        shape = ()
    if not shape or min(shape) < 1:
        raise InputError(f"input_shape must be the shape of one input, such as (3, 32, 32), not {input_shape!r}.")
    return shape


def _fitting(module: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape, if the module takes batches of it; without its first axis where it was that of a batch of one."""
    misfit = _misfit(module, shape)
    if misfit is None:
        return shape
    if shape[0] == 1 and len(shape) > 1 and _misfit(module, shape[1:]) is None:
        return shape[1:]
    raise misfit


def _misfit(module: nn.Module, shape: tuple[int, ...]) -> InputError | None:
    x = tripwire.points(module, shape)
    for batch in (1, BATCH):
        try:
            with torch.no_grad():
                graph.scores(module, x[:batch].clone())
        except InputError as error:
            return error
        except Exception as error:  # whatever an operation raises on a wrong shape
            names = {part: name or "itself" for name, part in module.named_modules()}
            parts = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
            where = [names[part] for part in parts if isinstance(part, nn.Module) and part in names]
            name = where[-1] if where else "itself"
            return InputError(f"an input of shape {shape} does not fit {name} ({graph.reason(error)}).")
    return None


class _Walk:
    """Carries the Lipschitz bound of every value along the graph of a batch."""

    def __init__(self, module: nn.Module, program: Program, norm: Norm, whole: bool) -> None:
        self.program = program
        self.norm = norm
        self.modules = dict(module.named_modules(remove_duplicate=False))
        self.regions = regions(module, program, whole)
        self.signals: dict[fx.Node, Any] = {}
        self.layers: list[tuple[str, str, float]] = []
        self.call = ""

    def bound(self) -> float:
        for node in self.program.module.graph.nodes:
            if node is self.program.input:
                shape = tuple(node.meta["val"].shape)
                self.signals[node] = Signal(shape, 1.0, batch_rows(shape))
            elif node.op == "call_function" and node not in self.program.constants and node.target not in CHECKS:
                region = self.regions.get(node)
                if region is None:
                    self.signals[node] = self.carry(node)
                elif region.output is node:
                    self.signals[node] = self.answer(region)
        output = self.settled(self.program.output)
        if not isinstance(output, Signal) or not math.isfinite(output.bound):
            raise InputError("the module is not Lipschitz, or its bound is too large for a float.")
        if not is_batch(output, BATCH):
            raise InputError(f"the module is refused: {MIXES}")
        return output.bound

    def last(self) -> LastLayer | None:
        """The linear layer at the end, if there is one with one vector of features for each input."""
        node, known = self.program.output, self.program.constants
        if node.target is not torch.ops.aten.linear.default or node.args[0] not in self.signals:
            return None
        features, weight = self.settled(node.args[0]), known.get(node.args[1])
        biased = len(node.args) == 3 and node.args[2] is not None and node.args[2] not in known
        if biased or weight is None or not (len(features.shape) == 2 and is_batch(features, BATCH)):
            return None
        return LastLayer(features.bound, weight.detach().double().cpu())

    def answer(self, region: Region) -> Signal:
        """The signal that comes out of a module that answers for itself."""
        x, kind = self.settled(region.input), type(region.module).__name__
        name = region.name or "itself"
        shape = tuple(region.output.meta["val"].shape)
        if not isinstance(x, Signal) or not is_batch(x, BATCH) or not shape or shape[0] != BATCH:
            raise InputError(f"{kind} ({name}) is refused: its bound is for tensors whose first axis is the batch.")
        self.usable([x], f"{kind} ({name})")
        result = self.ask(f"{kind} ({name})", region.rule, shape, region.module, x)
        self.call = ""
        return self.made(region.output, result, x, batch_rows(shape), name, kind)

    def carry(self, node: fx.Node) -> Any:
        """What stands for the value of a node: a signal, or a tuple of signals."""
        if node.target is operator.getitem:
            return self.signals[node.args[0]][node.args[1]]
        name, kind, call = self.where(node)
        where = f"{graph.label(node)} in {kind} ({name})" if call else f"{graph.label(node)} ({name})"
        entry = rules.find(node.target)
        if entry is None:
            raise InputError(
                f"there is no Lipschitz rule for {where}: give it one with smoothcert.lipschitz.register, "
                "or its module a method lipschitz_bound()."
            )
        for folds in (entry.folds, None):
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda source, f=folds: self.value(source, f))
            self.usable((args, kwargs), where)
            value = node.meta["val"]
            shape = tuple((value[0] if isinstance(value, tuple | list) else value).shape)
            result = self.ask(where, entry.rule, shape, *args, **kwargs)
            if result is not NotImplemented:
                break
        inputs = signals(args, kwargs)
        if not isinstance(result, Join) and len(inputs) != 1:
            raise InputError(f"the Lipschitz rule of {where} is for one signal, and several meet there.")
        self.call, before = call, self.call
        same = bool(call) and call == before
        if isinstance(result, Moved):
            return self.moved(node, result, inputs[0], name, kind, same)
        rows = self.ask(where, entry.rows, shape, *args, **kwargs)
        return self.made(node, result, inputs[0], rows, name, kind, same)

    def made(
        self, node: fx.Node, result: Any, x: Signal, rows: Tensor, name: str, kind: str, same: bool = False
    ) -> Any:
        """The signals of the outputs of an operation; those behind the first are of no use, as most are indices."""
        value = node.meta["val"]
        several = isinstance(value, tuple | list)
        first = value[0] if several else value
        shape = tuple(first.shape)
        if isinstance(result, Convolution):
            folded = isinstance(x.pending, Convolution)
            before = (f"{x.name}+", f"{x.kind}+") if folded else ("", "")
            signal = Signal(shape, x.bound, rows, result, before[0] + name, before[1] + kind)
        elif isinstance(result, Join):
            signal = Signal(shape, result.bound, rows)
        else:
            self.note(name, kind, float(result), same)
            signal = Signal(shape, x.bound * result, rows)
        if not first.is_floating_point():
            signal = replace(signal, bound=math.inf, pending=None)
        return (signal, *(replace(signal, bound=math.inf, pending=None) for _ in value[1:])) if several else signal

    def moved(self, node: fx.Node, result: Moved, x: Signal, name: str, kind: str, same: bool) -> Any:
        """The signals of the outputs of an operation that moves entries, and rows with them."""
        labels = torch.cat([torch.zeros(1, dtype=torch.int8), x.rows.flatten()])
        found = []
        for sources in result.sources:
            rows, norm = labels[sources.long()], rules.copies(sources)
            if result.padding is not None:
                found.append(Signal(tuple(rows.shape), x.bound, rows, result.padding, name, kind))
            else:
                found.append(Signal(tuple(rows.shape), x.bound * norm, rows))
        if result.padding is None:
            self.note(name, kind, max(map(rules.copies, result.sources)), same)
        return tuple(found) if result.several else found[0]

    def ask(self, where: str, rule: Any, *arguments: Any, **options: Any) -> Any:
        """What a rule says of these arguments."""
        try:
            return rule(*arguments, **options)
        except InputError as error:
            raise InputError(f"{where} is refused: {error}") from None
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            raise InputError(f"the Lipschitz rule of {where} does not know these arguments.") from error

    def usable(self, values: Any, where: str) -> None:
        if any(math.isinf(x.bound) for x in signals(values)):
            raise InputError(f"{where} is refused: it uses whole numbers or truth values, which jump with the input.")

    def value(self, node: fx.Node, folds: type | None) -> Any:
        if node not in self.program.constants:
            return self.settled(node, folds)
        constant = self.program.constants[node]
        if isinstance(constant, Tensor) and constant.is_floating_point() and bool(constant.isnan().any()):
            raise InputError(f"a constant of the module ({node.name}) is not a number, or memory as it was found.")
        return constant

    def settled(self, node: fx.Node, folds: type | None = None) -> Any:
        """The signal of a node with the norm of its linear layer taken, unless the next operation folds into it."""
        x = self.signals[node]
        if isinstance(x, Signal) and x.pending is not None and not (folds and isinstance(x.pending, folds)):
            norm = x.pending.norm if isinstance(x.pending, Padding) else self.norm(x.pending)
            self.note(x.name, x.kind, norm)
            self.signals[node] = Signal(x.shape, x.bound * norm, x.rows)
        return self.signals[node]

    def note(self, name: str, kind: str, norm: float, same: bool = False) -> None:
        """Enter a layer; the operations of one call of a module that has no parts are one layer."""
        if same and self.layers and self.layers[-1][0] == name:
            self.layers[-1] = (name, kind, self.layers[-1][2] * norm)
        elif kind[:1].isupper() or norm != 1.0:
            self.layers.append((name, kind, norm))

    def where(self, node: fx.Node) -> tuple[str, str, str]:
        """The name and the kind of a layer, and the call that it belongs to: of a module without parts, where it is."""
        stack = list(node.meta.get("nn_module_stack", {}).items())
        if stack:
            call, (name, _) = stack[-1]
            part = self.modules.get(name)
            if part is not None and not any(part.children()):
                return name or "itself", type(part).__name__, call
        return node.name, graph.label(node).removeprefix("aten."), ""
