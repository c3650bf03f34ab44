"""What a module does to a batch, as `torch.export` records it.

The graph is what ran: ATen operations with explicit axes and without side effects. Patched methods, hooks, branches on
types, views that are written to and `out=` have become plain operations. One that has a rule is kept whole, the others
are taken apart into core ATen. Export can be fooled, too (`torch.compiler.is_compiling()`, a branch on the size of the
batch), so a module is exported at two sizes, and what the two graphs and the module itself do is compared.
"""

from __future__ import annotations

import logging
import math
import operator
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from smoothcert.errors import InputError
from smoothcert.lipschitz import record
from smoothcert.modules import warm_up

BATCH = 3
"""The batch that rules are applied at; the graph of a batch of one must be the same but for that size."""

aten = torch.ops.aten

MARK = aten._assert_tensor_metadata.default
"""An operation that does nothing: of one argument alone, it marks a tensor that a module returned."""

CHECKS = {MARK}
_SAME = {aten.clone.default, aten.alias.default, aten.detach.default, aten.contiguous.default}
_EMPTY = {aten.empty.memory_format, aten.empty_like.default, aten.new_empty.default, aten.empty_strided.default}
_LIKE = {aten.full_like.default, aten.zeros_like.default, aten.ones_like.default, aten.empty_like.default}
_LIKE |= {aten.new_full.default, aten.new_zeros.default, aten.new_ones.default, aten.new_empty.default}


@dataclass(frozen=True)
class Program:
    """One exported graph; `constants` has the value of every node that does not depend on the input."""

    module: fx.GraphModule
    input: fx.Node
    output: fx.Node
    constants: dict[fx.Node, Any]
    whole: nn.Module
    """The same before its operations were taken apart."""

    def __call__(self, x: Tensor) -> Tensor:
        """What the graph makes of inputs, in batches of the size that it was exported with."""
        return self.run(x, lambda node, value: None)

    def run(self, x: Tensor, seen: Callable[[fx.Node, Any], None]) -> Tensor:
        """The same, showing the value of every node that depends on the input; constants are those of the program."""
        found = _Run(self, seen).run(x)
        outputs: Any = self.module.graph.output_node().args[0]
        scores: Tensor = found[list(outputs).index(self.output)]
        return scores

    def arguments(self, x: Tensor) -> list[Any]:
        """What the graph is called with: the inputs, and what export took out of the module."""
        nodes = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        return [x if node is self.input else self.constants[node] for node in nodes]

    @property
    def batch(self) -> int:
        """How many inputs it takes at a time."""
        return int(self.input.meta["val"].shape[0])

    @property
    def eps(self) -> float:
        """The ε of the coarsest type that the graph computes in."""
        values = (node.meta.get("val") for node in self.calls if node not in self.constants)
        types = {value.dtype for value in values if isinstance(value, Tensor) and value.is_floating_point()}
        return max((torch.finfo(dtype).eps for dtype in types), default=0.0)

    @property
    def calls(self) -> list[fx.Node]:
        """The operations that a rule is needed for or that make a constant, in the order in which they ran."""
        return [node for node in self.module.graph.nodes if node.op == "call_function" and node.target not in CHECKS]

    def returned(self) -> dict[tuple[int, str], list[fx.Node]]:
        """What each call of a module returned, by its depth and its name."""
        found: dict[tuple[int, str], list[fx.Node]] = {}
        for node in self.module.graph.nodes:
            stack = list(node.meta.get("nn_module_stack", {}))
            if node.target is MARK and len(node.args) == 1 and not node.kwargs and stack:
                found.setdefault((len(stack) - 1, stack[-1]), []).append(node.args[0])
        return found


def scores(module: nn.Module, x: Tensor) -> Tensor:
    """The one tensor that the module itself returns, alone or in a structure."""
    found = [leaf for leaf in pytree.tree_leaves(module(x)) if leaf is not None]
    if len(found) != 1 or not isinstance(found[0], Tensor):
        raise InputError("the module must return one tensor that depends on its input.")
    return found[0]


def trace(module: nn.Module, x: Tensor, keep: frozenset[Any]) -> Program:
    """The graph of the module on a batch x, with the operations `keep` whole and its constants computed."""
    try:
        with torch.no_grad(), _quiet(), _marked(), torch.random.fork_rng(devices=[]):
            warm_up(module, x)
            whole = torch.export.export(module, (x,), strict=False)
            exported = whole.run_decompositions(dict(_table(keep)))
    except Exception as error:  # export runs the module's own code, which may raise anything
        raise InputError(
            f"torch.export cannot follow {type(module).__name__} ({reason(error)}): write its forward without "
            "conditions on the data, or give the whole module a method lipschitz_bound()."
        ) from error
    signature, state = exported.graph_signature, {**exported.state_dict, **exported.constants}
    if signature.buffers_to_mutate:
        changed = sorted(signature.buffers_to_mutate.values())[0]
        raise InputError(f"the module changes its buffer {changed} when it runs, so that it is not one function.")
    nodes = {node.name: node for node in exported.graph.nodes}
    if parts := [node for node in exported.graph.nodes if node.op == "get_attr"]:
        raise InputError(f"the module runs a graph within its graph ({parts[0].target}), which has no Lipschitz rule.")
    outputs = [name for name in signature.user_outputs if isinstance(name, str)]
    inputs = [spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    if len(outputs) != 1 or len(inputs) != 1:
        raise InputError("the module must take one tensor and return one tensor that depends on it.")
    constants: dict[fx.Node, Any] = {
        nodes[spec.arg.name]: state[spec.target].detach()
        for spec in signature.input_specs
        if spec.kind is not InputKind.USER_INPUT and isinstance(state.get(spec.target), Tensor)
    }
    program = Program(exported.graph_module, nodes[inputs[0]], nodes[outputs[0]], constants, whole.module())
    with torch.no_grad():
        if exported.range_constraints:
            _Sizes(exported.graph_module).run(*program.arguments(x))
        _fold(program, keep)
    if program.output in constants:
        raise InputError("the module must return one tensor that depends on its input.")
    return program


class _Run(fx.Interpreter):
    """Runs what depends on the input, and shows it."""

    def __init__(self, program: Program, seen: Callable[[fx.Node, Any], None]) -> None:
        super().__init__(program.module)
        self.extra_traceback = False  # an error is one sentence
        self.constants, self.seen = program.constants, seen

    def run_node(self, n: fx.Node) -> Any:
        if n in self.constants:
            return self.constants[n]
        value = super().run_node(n)
        self.seen(n, value)
        return value


class _Sizes(fx.Interpreter):
    """Puts tensors in the place of those whose sizes export left open, as repeat_interleave by a tensor does."""

    def run_node(self, n: fx.Node) -> Any:
        n.meta["val"] = super().run_node(n)
        return n.meta["val"]


def compare(one: Program, many: Program) -> None:
    """Refuse a module whose graph for one input is not the graph for several, but for their number."""
    mine, theirs = ([node for node in p.calls if node.target not in _SAME] for p in (one, many))
    place = {node: i for nodes in (mine, theirs) for i, node in enumerate(nodes)}
    place |= {one.input: -1, many.input: -1}
    times = many.batch  # that of `one` is 1

    def source(node: fx.Node) -> fx.Node:
        while node.target in _SAME:
            node = node.all_input_nodes[0]
        return node

    def alike(a: Any, b: Any, moves: bool) -> bool:
        if isinstance(a, fx.Node) and isinstance(b, fx.Node):
            if a in one.constants or b in many.constants:
                return (
                    a in one.constants and b in many.constants and _extends(one.constants[a], many.constants[b], times)
                )
            return place[source(a)] == place[source(b)]
        if isinstance(a, list | tuple) and isinstance(b, list | tuple):
            return len(a) == len(b) and all(map(alike, a, b, [moves] * len(a)))
        return type(a) is type(b) and (a == b or (moves and type(a) is int and b == times * a))

    same = len(mine) == len(theirs) and alike(one.output, many.output, False)
    for a, b in zip(mine, theirs, strict=False):
        if not same or a.target != b.target:
            same = False
            break
        if a in one.constants and b in many.constants:
            continue  # compared by its value, where it is used
        options = a.kwargs.keys() == b.kwargs.keys()
        moves = a.target in SIZED
        same = options and alike(a.args, b.args, moves) and alike([*a.kwargs.values()], [*b.kwargs.values()], moves)
        same = same and all(times * x == y for x, y in zip(_sizes(a), _sizes(b), strict=True))
    if not same:
        raise InputError(
            f"the module does not do the same to a batch of one as to a batch of {times}: let its forward not look at "
            "the size of the batch."
        )


SIZED = {aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.expand.default, aten.slice.Tensor}
"""Operations that only move entries and may name the size of the batch."""


def replay(module: nn.Module, one: Program, many: Program, x: Tensor) -> None:
    """Refuse a module that does not do what its graphs do, or not to each row of a batch what it does to it alone.

    It must run their operations, with gradients and without, and come to their scores. The allowance is √ε of the
    largest score, ε that of the type of the scores: what rounding can do, and no more.
    """
    truth = rows_alone(module, x)
    with torch.random.fork_rng(devices=[]):
        for graph, size in ((one, 1), (many, BATCH)):
            alike = True
            for mode in (torch.inference_mode, torch.enable_grad):
                with mode():
                    alike &= record.same(partial(scores, module), partial(scores, graph.whole), x[:size])
            with torch.no_grad():
                for i in range(0, len(x) - size + 1, size):
                    alike = alike and _close(truth[i : i + size], graph(x[i : i + size].clone()))
            if not alike:
                raise InputError(
                    "the module does not do what torch.export records of it, so that no rule applies: let its forward "
                    "not ask whether it is compiled, which type or values its input has, or whether gradients are on."
                )


def rows_alone(module: nn.Module, x: Tensor) -> Tensor:
    """The scores of inputs, if the module gives them one by one and in batches of other sizes, too."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        truth = scores(module, x.clone())
        if not truth.shape or truth.shape[0] != len(x):
            raise InputError("the module must return one row of scores for each input of a batch.")
        for size in (1, BATCH):
            for i in range(0, len(x) - size + 1, size):
                if not _close(truth[i : i + size], scores(module, x[i : i + size].clone())):
                    raise InputError(
                        "the module gives an input other scores in another batch: let its forward treat each row by "
                        "itself."
                    )
    return truth


def reason(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")


def _close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype or not a.is_floating_point():
        return False
    finite = a[a.isfinite()].double().abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    allowed = math.sqrt(torch.finfo(a.dtype).eps) * largest
    return torch.allclose(a.double(), b.double(), rtol=0.0, atol=allowed, equal_nan=True)


def _extends(a: Any, b: Any, times: int) -> bool:
    """Is b the constant a, or a with its axes of one repeated for each of so many rows?"""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return bool(a == b)
    if a is b or (a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()):
        return True
    if a.ndim != b.ndim or any(m not in (n, times if n == 1 else n) for n, m in zip(a.shape, b.shape, strict=True)):
        return False
    return torch.allclose(a.expand(b.shape), b, rtol=0.0, atol=0.0, equal_nan=True)


def _sizes(node: fx.Node) -> list[int]:
    value = node.meta.get("val")
    return [t.numel() for t in (value if isinstance(value, list | tuple) else [value]) if isinstance(t, Tensor)]


def _fold(program: Program, ruled: frozenset[Any]) -> None:
    """Compute what does not depend on the input; what depends on its shape alone is a constant, too.

    An operation that can be random is refused, unless it has a rule, which then answers for it.
    """
    known = program.constants

    def value(node: fx.Node) -> Any:
        if node in known:
            return known[node]
        fake = node.meta["val"]
        return torch.zeros(fake.shape, dtype=fake.dtype, device=fake.device)

    for node in program.calls:
        sources = node.all_input_nodes[1:] if node.target in _LIKE else node.all_input_nodes  # of the first, its shape
        constant = all(source in known for source in sources)
        random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if random and (constant or node.target not in ruled):
            raise InputError(f"{label(node)} is random, so that the module is not one function of its input.")
        if constant:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), value)
            operation: Any = node.target
            known[node] = operation(*args, **kwargs)
            if node.target in _EMPTY and known[node].is_floating_point():
                known[node].fill_(math.nan)  # memory as it was found is not a constant


def label(node: fx.Node) -> str:
    """The operation of a node as torch.ops names it."""
    if node.target is operator.getitem:
        return "getitem"
    return str(node.target).removesuffix(".default")


@lru_cache(maxsize=8)
def _table(keep: frozenset[Any]) -> dict[Any, Any]:
    """Torch's decompositions into core ATen, without those of the operations to keep."""
    known: dict[Any, Any] = torch.export.default_decompositions()
    return {op: how for op, how in known.items() if op not in keep}


@contextmanager
def _marked() -> Iterator[None]:
    """Every module marks what it returns."""

    def mark(module: nn.Module, inputs: Any, output: Any) -> None:
        for leaf in pytree.tree_leaves(output):
            if isinstance(leaf, Tensor):
                MARK(leaf)

    hook = nn.modules.module.register_module_forward_hook(mark)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _quiet() -> Iterator[None]:
    """Export comments on what it does: what matters reaches the user as one sentence."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
