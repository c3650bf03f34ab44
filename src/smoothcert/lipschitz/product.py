"""A Lipschitz bound of a whole network: its layers' bounds, combined along the graph that torch.fx traces."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

from smoothcert.errors import InputError
from smoothcert.lipschitz import rules, spectral
from smoothcert.lipschitz.rules import Join, Signal
from smoothcert.lipschitz.spectral import Convolution

Method = Literal["fourier", "gram", "power"]
_NORMS = {"fourier": spectral.fourier, "gram": spectral.gram, "power": spectral.power}


@dataclass(frozen=True)
class Layer:
    """One operation of the network: its norm, and its share of the product, `log norm / Σ |log norm|`."""

    name: str
    kind: str
    norm: float
    share: float


@dataclass(frozen=True)
class LipschitzBound:
    """An upper bound of a network's ℓ2 → ℓ2 constant; *estimated* when its norms come from power iteration."""

    value: float
    basis: Literal["proved", "estimated"]
    layers: tuple[Layer, ...]


def product(
    module: nn.Module, input_shape: Sequence[int], method: Method = "fourier", *, inside: bool = False
) -> LipschitzBound:
    """A bound of `‖f(x) − f(y)‖₂ / ‖x − y‖₂` over all inputs x, y of one shape, such as (3, 32, 32).

    Layers multiply, residual additions add, concatenations add squares; a batch normalisation (evaluation mode
    only) is folded into the layer before it; a module with a method `lipschitz_bound()` answers for itself, the whole
    network too unless its layers are asked for with `inside`. The norms are in float64 and include a margin for
    rounding; what the network itself rounds is not included.

    >>> product(nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.ReLU()), (2, 2)).basis
    'proved'
    """
    if method not in _NORMS:
        raise InputError(f"there is no method {method!r} for norms: use one of {', '.join(_NORMS)}.")
    require_evaluation(module)
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"{name} of the module is not finite: train or load it again.")
    value, norms = _walk(_trace(module, inside), _checked(input_shape), method)
    logs = [math.log(norm) if norm > 0 else 0.0 for _, _, norm in norms]
    scale = sum(map(abs, logs)) or 1.0
    layers = tuple(Layer(*entry, log / scale) for entry, log in zip(norms, logs, strict=True))
    return LipschitzBound(value, "estimated" if method == "power" else "proved", layers)


def require_evaluation(module: nn.Module) -> None:
    """Refuse batch normalisation and dropout in training mode: they are not the map that is certified."""
    kinds = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
    for name, part in module.named_modules():
        if part.training and isinstance(part, kinds) and getattr(part, "p", 1) > 0:
            raise InputError(f"{type(part).__name__} {name!r} is in training mode: call .eval() on the module first.")


class _Network(nn.Module):
    """A module around the network, so that the network itself may be one operation of the graph."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Any:
        return self.network(x)


class _Tracer(fx.Tracer):
    """Follows modules down to those with a rule or a bound of their own, but into `inside` whatever bound it has."""

    def __init__(self, inside: nn.Module | None) -> None:
        super().__init__()
        self.inside = inside

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        own = hasattr(module, "lipschitz_bound") and not (module is self.inside and list(module.children()))
        known = own or rules.find(module) is not None
        return known or super().is_leaf_module(module, name)


def _trace(module: nn.Module, inside: bool) -> fx.GraphModule:
    network = _Network(module)
    try:
        return fx.GraphModule(network, _Tracer(module if inside else None).trace(network))
    except Exception as error:  # tracing runs the module's own code, which may raise anything
        raise InputError(
            f"torch.fx cannot trace {type(module).__name__} ({_reason(error)}): write its forward without conditions "
            "on the data, or give it a method lipschitz_bound()."
        ) from error


def _checked(input_shape: Sequence[int]) -> tuple[int, ...]:
    try:
        shape = tuple(operator.index(n) for n in input_shape)
    except TypeError:
        shape = ()
    if not shape or min(shape) < 1:
        raise InputError(f"input_shape must be the shape of one input, such as (3, 32, 32), not {input_shape!r}.")
    return shape


def _walk(graph: fx.GraphModule, shape: tuple[int, ...], method: Method) -> tuple[float, list[tuple[str, str, float]]]:
    walk = _Walk(graph, shape, method)
    try:
        return walk.bound(), walk.layers
    except _Misfit as misfit:
        if shape[0] != 1 or len(shape) == 1:
            raise
        try:  # a batch of one is understood, too
            return _walk(graph, shape[1:], method)
        except _Misfit:
            raise misfit from None


class _Misfit(InputError):
    """The shape of the input does not fit the network."""


class _Walk(fx.Interpreter):
    """Runs the graph on zeros, for the shapes, and carries the Lipschitz bound of every value beside it."""

    def __init__(self, graph: fx.GraphModule, shape: tuple[int, ...], method: Method) -> None:
        super().__init__(graph)
        self.extra_traceback = False  # an error is one sentence
        self.shape = shape
        self.norm = _NORMS[method]
        self.signals: dict[fx.Node, Any] = {}
        self.layers: list[tuple[str, str, float]] = []

    def bound(self) -> float:
        tensors = itertools.chain(self.module.parameters(), self.module.buffers())
        like = next((tensor for tensor in tensors if tensor.is_floating_point()), torch.empty(0))
        with torch.no_grad():
            self.run(torch.zeros(1, *self.shape, dtype=like.dtype, device=like.device))
        (output,) = (node.args[0] for node in self.graph.nodes if node.op == "output")
        if not isinstance(output, fx.Node) or not isinstance(self.signals[output], Signal):
            raise InputError("the module must return one tensor that depends on its input.")
        bound: float = self.settled(output).bound
        if not math.isfinite(bound):
            raise InputError("the module is not Lipschitz, or its bound is too large for a float.")
        return bound

    def run_node(self, node: fx.Node) -> Any:
        try:
            value = super().run_node(node)
        except Exception as error:  # whatever the operation raises on a wrong shape
            where = f"{_name(node)} ({_reason(error)})"
            raise _Misfit(f"an input of shape {self.shape} does not fit {where}.") from error
        if node.op == "placeholder":
            self.signals[node] = Signal(tuple(value.shape), 1.0)
        elif node.op != "output":
            self.signals[node] = self.carry(node, value)
        return value

    def carry(self, node: fx.Node, value: Any) -> Any:
        """What stands for the value of a node: a signal, a tuple of signals, or a constant as it is."""
        sources = [self.signals[source] for source in node.all_input_nodes]
        if not rules.signals(sources):
            return value
        if isinstance(sources[0], tuple) and node.target in (operator.getitem, getattr):
            part: Any = node.args[1]
            return sources[0][{"values": 0, "indices": 1}.get(part, part)]
        module = self.fetch_attr(str(node.target)) if node.op == "call_module" else None
        name, kind = _name(node), type(module).__name__ if module is not None else _kind(node)
        if module is not None and _hooks(module):
            raise InputError(f"{kind} ({name}) has a forward hook, which has no Lipschitz rule: remove it first.")
        rule, folds = _rule(module, node.target, f"{kind} ({name})")
        for source in node.all_input_nodes:
            self.settled(source, folds)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.signals.__getitem__)
        try:
            result = rule(_shape(value), *([] if module is None else [module]), *args, **kwargs)
        except InputError as error:
            raise InputError(f"{kind} ({name}) is refused: {error}") from None
        except TypeError as error:
            raise InputError(f"the Lipschitz rule of {kind} ({name}) does not know these arguments.") from error
        if isinstance(result, Join):
            return _lift(value, result.bound)
        inputs = rules.signals(args, kwargs)
        if len(inputs) != 1:
            raise InputError(f"the Lipschitz rule of {kind} ({name}) is for one signal, and several meet there.")
        (x,) = inputs
        if isinstance(result, Convolution):
            if len(result.size) != len(result.stride):  # torch takes the axis of the batch for the channels
                raise _Misfit(f"an input of shape {self.shape} does not fit {name} (it has too few axes).")
            before = (f"{x.name}+", f"{x.kind}+") if x.pending else ("", "")
            return Signal(_shape(value), x.bound, result, before[0] + name, before[1] + kind)
        overwrites = getattr(module, "inplace", False) or node.kwargs.get("inplace", False)
        if overwrites and result > 1 and any(len(source.users) > 1 for source in node.all_input_nodes):
            raise InputError(f"{kind} ({name}) overwrites a tensor that is used again: give it inplace=False.")
        if module is not None or result not in (0.0, 1.0):
            self.layers.append((name, kind, result))
        return _lift(value, x.bound * result)

    def settled(self, node: fx.Node, folds: bool = False) -> Any:
        """The signal of a node with the norm of its linear layer taken, unless the next operation folds into it."""
        x = self.signals[node]
        if isinstance(x, Signal) and x.pending and not (folds and len(x.shape) == 2 + len(x.pending.size)):
            norm = self.norm(x.pending)
            self.layers.append((x.name, x.kind, norm))
            self.signals[node] = Signal(x.shape, x.bound * norm)
        return self.signals[node]


def _rule(module: nn.Module | None, target: Any, where: str) -> tuple[rules.Rule, bool]:
    if module is not None and hasattr(module, "lipschitz_bound"):
        return _own_bound, False
    found = rules.find(target if module is None else module)
    if found is None:
        raise InputError(
            f"there is no Lipschitz rule for {where}: give it one with smoothcert.lipschitz.register, "
            "or its module a method lipschitz_bound()."
        )
    return found


def _hooks(module: nn.Module) -> list[Any]:
    """Hooks that may change what goes through a module; those of torch.nn.utils only compute its weight."""
    before = [h for h in module._forward_pre_hooks.values() if not type(h).__module__.startswith("torch.nn.utils")]
    return [*before, *module._forward_hooks.values()]


def _own_bound(shape: rules.Shape, module: Any, *arguments: Any, **options: Any) -> float:
    """The bound of a design that is Lipschitz by construction, from the module itself."""
    bound = float(module.lipschitz_bound())
    if not (math.isfinite(bound) and bound >= 0):
        raise InputError(f"its lipschitz_bound() is {bound}, which is no bound.")
    return bound


def _lift(value: Any, bound: float) -> Any:
    """Signals for the tensors in a value; an integer tensor jumps, so that nothing bounds what is made of it."""
    if isinstance(value, Tensor):
        return Signal(tuple(value.shape), bound if value.is_floating_point() else math.inf)
    if isinstance(value, tuple | list) and any(isinstance(part, Tensor) for part in value):
        return tuple(_lift(part, bound) for part in value)
    if bound == 0:
        return value
    raise InputError("the module makes a number of its input, which has no Lipschitz rule.")


def _shape(value: Any) -> rules.Shape:
    """The shape of a value, or of the first of several."""
    first = value[0] if isinstance(value, tuple | list) and len(value) else value
    return tuple(first.shape) if isinstance(first, Tensor) else ()


def _kind(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def _name(node: fx.Node) -> str:
    """Where the operation stands: the path of a module, the name of a node."""
    if node.op != "call_module":
        return node.name
    return str(node.target).removeprefix("network").removeprefix(".") or "itself"


def _reason(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")
