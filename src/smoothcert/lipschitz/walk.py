"""The Lipschitz bound of every value along a graph, from the input to the scores."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from smoothcert.errors import InputError
from smoothcert.lipschitz import graph, rules
from smoothcert.lipschitz.graph import CHECKS, Program
from smoothcert.lipschitz.regions import Region, regions
from smoothcert.lipschitz.rules import Join, Moved
from smoothcert.lipschitz.signals import MIXES, Padding, Signal, batch_rows, is_batch, signals
from smoothcert.lipschitz.spectral import Convolution

Norm = Callable[[Convolution], float]


@dataclass(frozen=True)
class LastLayer:
    """The linear layer that the scores come from: `scores = weight · features + …`, in float64.

    `before` bounds the constant of the features, so that `before · ‖w_k − w_j‖` bounds that of `f_k − f_j`.
    """

    before: float
    weight: Tensor = field(repr=False, compare=False)


class Walk:
    """Carries the Lipschitz bound of every value along the graph of a batch.

    `norms` are those of the linear operations whose norm was taken, each with what is `folded` into it, and `answers`
    what modules said of themselves, by the nodes where they end.
    """

    def __init__(self, module: nn.Module, program: Program, norm: Norm, whole: bool) -> None:
        self.program = program
        self.norm = norm
        self.modules = dict(module.named_modules(remove_duplicate=False))
        self.regions = regions(module, program, whole)
        self.signals: dict[fx.Node, Any] = {}
        self.layers: list[tuple[str, str, float]] = []
        self.norms: dict[fx.Node, float] = {}
        self.folded: set[fx.Node] = set()
        self.answers: dict[fx.Node, Any] = {}
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
        if not is_batch(output, self.program.batch):
            raise InputError(f"the module is refused: {MIXES}")
        return output.bound

    def last(self) -> LastLayer | None:
        """The linear layer at the end, if there is one with one vector of features for each input."""
        node, known = self.program.output, self.program.constants
        arguments: Any = (*node.args, None)
        if node.target is not torch.ops.aten.linear.default or arguments[0] not in self.signals:
            return None
        features, weight, bias = self.settled(arguments[0]), known.get(arguments[1]), arguments[2]
        if (
            not (bias is None or bias in known)
            or weight is None
            or not (len(features.shape) == 2 and is_batch(features, self.program.batch))
        ):
            return None
        return LastLayer(features.bound, weight.detach().double().cpu())

    def answer(self, region: Region) -> Signal:
        """The signal that comes out of a module that answers for itself."""
        x, kind = self.settled(region.input), type(region.module).__name__
        name = region.name or "itself"
        shape, batch = tuple(region.output.meta["val"].shape), self.program.batch
        if not isinstance(x, Signal) or not is_batch(x, batch) or not shape or shape[0] != batch:
            raise InputError(f"{kind} ({name}) is refused: its bound is for tensors whose first axis is the batch.")
        self.usable([x], f"{kind} ({name})")
        result = self.ask(f"{kind} ({name})", region.rule, shape, region.module, x)
        self.answers[region.output] = result
        self.call = ""
        signal: Signal = self.made(region.output, result, x, batch_rows(shape), name, kind)
        return signal

    def carry(self, node: fx.Node) -> Any:
        """What stands for the value of a node: a signal, or a tuple of signals."""
        if node.target is operator.getitem:
            several: Any = node.args
            if several[0] in self.folded:
                self.folded.add(node)
            return self.signals[several[0]][several[1]]
        name, kind, call = self.where(node)
        where = f"{graph.label(node)} in {self.inside(node)}"
        entry = rules.find(node.target)
        if entry is None:
            raise InputError(
                f"there is no Lipschitz rule for {where}: give it one with smoothcert.lipschitz.register, "
                "or its module a method lipschitz_bound()."
            )
        for folds in (entry.folds, None):
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), partial(self.value, folds=folds))
            self.usable((args, kwargs), where)
            value = node.meta["val"]
            shape = tuple((value[0] if isinstance(value, tuple | list) else value).shape)
            result = self.ask(where, entry.rule, shape, *args, **kwargs)
            if result is not None:
                break
        inputs = signals(args, kwargs)
        if any(x.pending is not None for x in inputs):
            self.folded.add(node)
        if result is None:
            raise InputError(f"the Lipschitz rule of {where} does not know these arguments.")
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
            signal = Signal(shape, times(x.bound, result), rows)
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
                found.append(Signal(tuple(rows.shape), times(x.bound, norm), rows))
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
            self.norms[node] = norm
            self.signals[node] = Signal(x.shape, times(x.bound, norm), x.rows)
        return self.signals[node]

    def note(self, name: str, kind: str, norm: float, same: bool = False) -> None:
        """Enter a layer; the operations of one call of a module that has no parts are one layer."""
        if same and self.layers and self.layers[-1][0] == name:
            self.layers[-1] = (name, kind, self.layers[-1][2] * norm)
        elif kind[:1].isupper() or norm != 1.0:
            self.layers.append((name, kind, norm))

    def inside(self, node: fx.Node) -> str:
        """The innermost module that the operation belongs to."""
        stack = list(node.meta.get("nn_module_stack", {}).values())
        name = stack[-1][0] if stack else ""
        return f"{type(self.modules.get(name, self.modules[''])).__name__} ({name or 'itself'})"

    def where(self, node: fx.Node) -> tuple[str, str, str]:
        """The name and the kind of a layer, and the call that it belongs to: of a module without parts, where it is."""
        stack = list(node.meta.get("nn_module_stack", {}).items())
        if stack:
            call, (name, _) = stack[-1]
            part = self.modules.get(name)
            if part is not None and not list(part.children()):
                return name or "itself", type(part).__name__, call
        return node.name, graph.label(node).removeprefix("aten."), ""


def times(bound: float, norm: float) -> float:
    """What would be smaller than floats are exact is rounded up."""
    return max(bound * norm, sys.float_info.min) if bound > 0 and norm > 0 else bound * norm
