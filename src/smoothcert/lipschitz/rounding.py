"""What float64 rounds on the way to the scores: a bound for every input of a ball, by forward error analysis.

Let `v_i(y)` be the exact value of operation i at the input y, `v̂_i` the computed one and `v̂_i = f_i(v̂_p, …) + e_i`,
where e_i is what this one operation rounds. The model of arithmetic (Higham, 2002, chapters 2 and 3): a sum of k
products, in whatever order, is within `γ_k Σ |a| |b|` of the exact one, `γ_k = k u / (1 − k u)`, `u = 2⁻⁵³`. With N_p
the norm of the operation whose weights are the absolute ones, and c for what it adds and takes away inside,

    ‖e_i‖ ≤ γ_i (Σ_p 2 N_p ‖v̂_p‖ + ‖f_i(v̂)‖ + c_i),

because a bias is the output less the rest. Let F_p ≤ N_p be the Lipschitz constant of f_i in its argument p, L_i that
of v_i, x the centre of the ball, y a point of it, and η_i what v̂_i is off by at x and at y together. Then
`‖v̂_i(y)‖ ≤ ‖v̂_i(x)‖ + L_i ‖y − x‖ + η_i`, so that

    η_i ≤ Σ_p (F_p + 4 γ_i N_p) η_p + γ_i s_i,
    s_i = 2.1 (Σ_p 2 N_p ‖v̂_p(x)‖ + ‖v̂_i(x)‖ + c_i) + (Σ_p 2 N_p L_p + L_i) ‖y − x‖.

It is linear: scores are off by at most `A + B ‖y − x‖`, weighted sums of the s_i whose weights one walk back from the
scores finds. A factor of 4 in the place of 2.1 leaves room for what is rounded here.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from smoothcert.errors import InputError
from smoothcert.lipschitz import rules
from smoothcert.lipschitz.graph import Program
from smoothcert.lipschitz.regions import Region, trusted
from smoothcert.lipschitz.rules import Join, Moved
from smoothcert.lipschitz.signals import Signal, batch_rows, entrywise
from smoothcert.lipschitz.spectral import Convolution, gram, padding_norm
from smoothcert.lipschitz.walk import Walk, times

aten = torch.ops.aten

UNIT = 2.0**-53
SOME = 32
"""More than the roundings of an operation on single entries; functions such as tanh are taken to err by less, too."""

UNSEEN = 2.0**-32
"""What a module that answers for itself and cannot be looked into is taken to lose of what goes in and comes out."""

ROOM = 4.0
TINY = 1e-150
"""An entry is taken to be at least so large, which is more than underflow and squares of small numbers can hide."""

HUGE = 1e100
"""Values beyond are not followed: they could overflow on the way."""

_EXACT = {
    variant
    for operation in (
        aten.relu, aten.relu6, aten.hardtanh, aten.abs, aten.neg, aten.positive, aten._to_copy,
        aten.maximum, aten.minimum, aten.clamp, aten.clamp_min, aten.clamp_max, aten.where, aten.masked_fill,
        aten.max, aten.min, aten.amax, aten.amin, aten.median, aten.kthvalue, aten.topk, aten.sort,
        aten.cat, aten.stack, aten.slice_scatter, aten.select_scatter, aten.copy,
        aten.max_pool2d, aten.max_pool2d_with_indices, aten.max_pool3d, aten.max_pool3d_with_indices,
        aten.adaptive_max_pool2d, aten.adaptive_max_pool3d,
    )
    for variant in rules.overloads(operation)
}  # fmt: skip
"""Operations that choose among numbers."""

_LINEAR = {
    variant
    for operation in (
        aten.add, aten.sub, aten.rsub, aten.mul, aten.div, aten.leaky_relu, aten.prelu, aten._prelu_kernel,
        aten.sum, aten.mean, aten.cumsum, aten.avg_pool2d, aten.avg_pool3d,
        aten._adaptive_avg_pool2d, aten.adaptive_avg_pool2d, aten._adaptive_avg_pool3d, aten.adaptive_avg_pool3d,
    )
    for variant in rules.overloads(operation)
}  # fmt: skip
"""Operations whose rounding vanishes with their numbers; `exp(x) − 1` is off by u where x is 0."""

_SUMS = {aten.linear.default, aten.addmm.default, aten.baddbmm.default}
_NORMALISED = {aten._native_batch_norm_legit_no_training.default, aten.instance_norm.default}


class Source(NamedTuple):
    """An argument of an operation, its F and its N; `inside` the part with a bound of its own that this is in."""

    node: fx.Node
    factor: float
    size: float
    inside: bool = False


@dataclass(frozen=True)
class Step:
    """One operation, and what it rounds: `γ (Σ 2N ‖source‖ + ‖value‖ + constant)`.

    `leap`, at the end of a part with a bound of its own (a module that answers for itself, linear operations that are
    folded together), is where that part begins, and its bound.
    """

    node: fx.Node
    sources: tuple[Source, ...]
    gamma: float = 0.0
    constant: float = 0.0
    leap: tuple[fx.Node, float] | None = None


@dataclass(frozen=True)
class Rounding:
    """Each computed score is within `A(x) + growth · ‖y − x‖` of the exact one, for y as far from x as `reach`.

    `A(x) = constant + Σ weight ‖v̂(x)‖` over the operations, where no norm is above `most`.
    """

    program: Program
    weights: dict[fx.Node, float]
    constant: float
    growth: float
    most: float
    reach: float

    @classmethod
    def of(cls, module: nn.Module, program: Program) -> Rounding:
        """Of the graph of one input of a module in float64; in a module that answers for itself, of what is inside."""
        try:
            steps = _Steps(module, program, gram, whole=False).found()
        except InputError:
            rule, shape = trusted(module), tuple(program.input.meta["val"].shape)
            if rule is None:
                raise
            x = Signal(shape, 1.0, batch_rows(shape))
            bound = _said(rule(tuple(program.output.meta["val"].shape), module, x))
            steps = [Step(program.output, (Source(program.input, bound, bound),), UNSEEN, leap=(program.input, bound))]
        return cls._summed(program, steps)

    @classmethod
    def _summed(cls, program: Program, steps: list[Step]) -> Rounding:
        weights: defaultdict[fx.Node, float] = defaultdict(float)
        constant, slopes = 0.0, _slopes(program.input, steps)
        for step, weight in _back(program.output, steps):
            constant += ROOM * weight * step.constant
            weights[step.node] += ROOM * weight
            for source in step.sources:
                weights[source.node] += 2 * ROOM * weight * source.size
        weights[program.output] += ROOM * _gamma(SOME)  # for the differences of scores
        constant += sum(weight * TINY * math.sqrt(_numel(node)) for node, weight in weights.items())
        growth = sum(weight * slopes[node] for node, weight in weights.items())
        most = HUGE / max([1.0, *(source.size for step in steps for source in step.sources)])
        if not math.isfinite(constant + growth + sum(slopes.values())):
            return cls(program, {}, math.inf, math.inf, 0.0, 0.0)
        return cls(program, dict(weights), constant, growth, most, most / max(slopes.values()))

    def at(self, x: Tensor) -> float:
        """A(x); infinite where the values of an operation leave what is followed."""
        found = {}

        def seen(node: fx.Node, value: Any) -> None:
            parts = value if isinstance(value, tuple | list) else (value,)
            floats = [part for part in parts if isinstance(part, Tensor) and part.is_floating_point()]
            found[node] = math.hypot(*(float(torch.linalg.vector_norm(part)) for part in floats))

        self.program.run(x[None], seen)
        allowed = self.constant + sum(weight * found[node] for node, weight in self.weights.items())
        inside = all(size <= self.most for size in found.values())
        return allowed if inside and math.isfinite(allowed) else math.inf


def _back(output: fx.Node, steps: list[Step]) -> Iterator[tuple[Step, float]]:
    """Each step, and how much of what it rounds can reach the scores, times γ.

    `whole` is the weight of all that a value is off by, `own` that of what was added since the part began whose bound
    leaps over it. In e_i stand errors of its arguments, too, times 4 γ N: all of them.
    """
    whole: defaultdict[fx.Node, float] = defaultdict(float)
    own: defaultdict[fx.Node, float] = defaultdict(float)
    whole[output] = 1.0
    for step in reversed(steps):
        here, added = whole[step.node], own[step.node]
        both = here + added
        for source in step.sources:
            whole[source.node] += times(4 * step.gamma * source.size, both)
            if step.leap is None:
                whole[source.node] += times(source.factor, here)
            if source.inside:
                own[source.node] += times(source.factor, added if step.leap is None else both)
        if step.leap is not None:
            start, bound = step.leap
            whole[start] += times(bound, here)
        yield step, times(step.gamma, both)


def _slopes(start: fx.Node, steps: list[Step]) -> dict[fx.Node, float]:
    """The Lipschitz bound of every value in the input."""
    found = {start: 1.0}
    for step in steps:
        if step.leap is None:
            found[step.node] = sum(times(source.factor, found[source.node]) for source in step.sources)
        else:
            found[step.node] = times(step.leap[1], found[step.leap[0]])
    return found


class _Steps(Walk):
    """Walks a graph, also inside modules that answer for themselves, and notes what each operation rounds."""

    def found(self) -> list[Step]:
        self.closed: dict[fx.Node, Region] = {}
        self.bound()
        seen = [node for node in self.program.calls if node in self.signals]
        calls = [node for node in seen if node not in self.closed or self.closed[node].output is node]
        return [self.step(node) for node in calls]

    def answer(self, region: Region) -> Signal:
        """What is inside is looked at as well; where that cannot be, the module is closed."""
        inside = [node for node in self.program.calls if node in region.nodes]
        try:
            for node in inside[: inside.index(region.output) + 1]:
                self.signals[node] = self.carry(node)
        except InputError:
            self.closed |= dict.fromkeys(region.nodes, region)
        return super().answer(region)

    def step(self, node: fx.Node) -> Step:
        region = self.regions.get(node)
        if region is not None and region.output is node:
            leap = (region.input, self.of_region(region))
            if node in self.closed:
                return Step(node, (Source(region.input, leap[1], leap[1]),), UNSEEN, leap=leap)
            return replace(self.operation(node, region), leap=leap)
        step = self.operation(node, region)
        if region is None and node in self.folded and node in self.norms:
            return replace(step, leap=(self.beginning(node), self.norms[node]))
        return step

    def of_region(self, region: Region) -> float:
        """The constant of a module that answers for itself."""
        result = self.answers[region.output]
        if isinstance(result, Join):
            x = replace(self.signals[region.input], bound=1.0, pending=None)
            result = region.rule(tuple(region.output.meta["val"].shape), region.module, x)
        return self.norms[region.output] if region.output in self.norms else _said(result)

    def beginning(self, node: fx.Node) -> fx.Node:
        """What goes into the first of the linear operations that are folded together."""
        region = self.regions.get(node)
        (source,) = (region.input,) if region is not None else self.arguments(node)
        return self.beginning(source) if region is None and node in self.folded else source

    def arguments(self, node: fx.Node) -> list[fx.Node]:
        """The arguments that depend on the input, each as often as it is one."""
        found: list[fx.Node] = []
        fx.node.map_arg((node.args, node.kwargs), lambda n: None if n in self.program.constants else found.append(n))
        return found

    def operation(self, node: fx.Node, region: Region | None) -> Step:
        """An operation by itself, with nothing folded into it."""
        nodes = self.arguments(node)

        def inside(source: fx.Node) -> bool:
            return node in self.folded if region is None else source is not region.input

        if node.target is operator.getitem:
            return Step(node, (Source(nodes[0], 1.0, 1.0, inside(nodes[0])),))
        entry = rules.find(node.target)
        assert entry is not None  # it was walked over
        value = node.meta["val"]
        shape = tuple((value[0] if isinstance(value, tuple | list) else value).shape)
        results: list[Any] = [
            entry.rule(shape, *args, **options) for args, options in self.one_by_one(node, len(nodes))
        ]
        entries = max(map(_numel, (node, *nodes)))
        count, spread = (SOME, 1.0) if entry.rows is entrywise else (SOME + entries, math.sqrt(entries))
        sources = []
        for source, result in zip(nodes, results, strict=True):
            if isinstance(result, Convolution):
                size = _absolute(result)
                factor = size if region is not None or node in self.folded else self.norms.get(node, size)
                _, outputs, inputs, *kernel = result.weight.shape
                count = SOME + max(outputs, inputs) * math.prod(kernel)
                if node.target is aten.einsum.default:
                    count += entries + sum(map(_numel, node.all_input_nodes))
            elif isinstance(result, Moved):
                factor = size = rules.copies(torch.cat([part.flatten() for part in result.sources]))
            else:
                factor = float(result.bound if isinstance(result, Join) else result)
                size = spread * factor
            sources.append(Source(source, factor, size, inside(source)))
        if node.target in _EXACT or isinstance(results[0], Moved):
            return Step(node, tuple(sources))
        gamma = math.inf if self.unbounded(node, results[0]) else _gamma(count)
        return Step(node, tuple(sources), gamma, self.constant(node, results[0]))

    def one_by_one(self, node: fx.Node, count: int) -> Iterator[Any]:
        """The arguments, where one signal after the other has the bound 1 and the others do not move."""
        for moving in range(count):
            places = itertools.count()

            def value(n: fx.Node, moving: int = moving, places: Iterator[int] = places) -> Any:
                if n in self.program.constants:
                    known = self.program.constants[n]
                    return known.abs() if node.target is aten.einsum.default else known
                return replace(self.signals[n], bound=float(next(places) == moving), pending=None)

            yield fx.node.map_arg((node.args, node.kwargs), value)

    def constant(self, node: fx.Node, result: Any) -> float:
        """What is added inside: of a batch normalisation its mean and bias, of a function at most 1 for each entry,
        times the numbers that it is given."""
        entries, arguments = _numel(node), list(node.args)
        if node.target in _NORMALISED:
            known: dict[Any, Any] = {**self.program.constants}
            bias, mean = (known.get(argument, torch.zeros(1)).double().cpu().abs() for argument in arguments[2:4])
            parts = mean * result.weight.abs().flatten() + bias
            return float(parts.norm()) * math.sqrt(entries / parts.numel())
        if node.target in _LINEAR or isinstance(result, Convolution):
            return 0.0
        numbers = [abs(n) for n in (*arguments, *node.kwargs.values()) if isinstance(n, int | float)]
        return math.sqrt(entries) * math.prod(max(1.0, float(n)) for n in numbers)

    def unbounded(self, node: fx.Node, result: Any) -> bool:
        """Constants that are added up inside and may cancel, and powers that underflow."""
        arguments = [*node.args, *node.kwargs.values()]
        if node.target is aten.linalg_vector_norm.default:
            return [*arguments, 2][1] not in (1, 2, math.inf)
        if node.target is aten.index_put.default:
            return arguments[3:] == [True]
        return node.target in _SUMS and isinstance(result, Join)


def _said(result: Any) -> float:
    """The constant of a module with one argument, from what its rule says of a signal of constant 1."""
    if isinstance(result, Convolution):
        return gram(result)
    return float(result.bound if isinstance(result, Join) else result)


def _gamma(count: int) -> float:
    return 2 * count * UNIT


def _absolute(operator: Convolution) -> float:
    """A bound of the norm with absolute weights: `√(‖·‖₁ ‖·‖_∞)`, and that of the padding."""
    weight = operator.weight.double().abs()
    weight = weight.flatten(3) if weight.ndim > 3 else weight[..., None]
    if not weight.numel():
        return 0.0
    before, mode = operator.padding, operator.padding_mode
    padding = (padding_norm(n, before[i], operator.padding_after(i), mode) for i, n in enumerate(operator.size))
    rows, columns = (math.sqrt(float(weight.sum(axes).max())) for axes in ((2, 3), (1, 3)))
    return rows * columns * math.prod(padding)


def _numel(node: fx.Node) -> int:
    value = node.meta["val"]
    return sum(part.numel() for part in (value if isinstance(value, tuple | list) else [value]))
