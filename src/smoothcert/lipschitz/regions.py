"""Modules that answer for themselves: the part of the graph that one call of such a module left behind."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import fx, nn
from torch.nn.modules import module as hooks

from smoothcert.errors import InputError
from smoothcert.lipschitz import rules
from smoothcert.lipschitz.graph import CHECKS, Program
from smoothcert.lipschitz.signals import Shape


@dataclass(frozen=True)
class Region:
    """All operations of one call of a module, with one tensor going in and one, that it returned, coming out."""

    name: str
    module: nn.Module
    rule: rules.Rule
    input: fx.Node
    output: fx.Node
    nodes: frozenset[fx.Node]


def trusted(module: nn.Module) -> rules.Rule | None:
    """The rule of a module that is taken at its word, or None.

    A rule or a `lipschitz_bound()` is that of the class it was written for: a subclass may run other code, and so does
    an instance whose `forward` was replaced or that has hooks, itself or in one of its parts.
    """
    kind = type(module)
    everywhere = (hooks._global_forward_hooks, hooks._global_forward_pre_hooks)
    if any(everywhere) or "lipschitz_bound" in vars(module) or any(map(_altered, module.modules())):
        return None
    if entry := rules.find(kind):
        return entry.rule
    return own_bound if "lipschitz_bound" in vars(kind) else None


def _altered(module: nn.Module) -> bool:
    return "forward" in vars(module) or bool(module._forward_hooks or module._forward_pre_hooks)


def answers(module: nn.Module) -> bool:
    """Has the module a `lipschitz_bound()` that is taken at its word?"""
    return trusted(module) is own_bound


def own_bound(shape: Shape, module: Any, *inputs: Any) -> float:
    """The bound of a design that is Lipschitz by construction, from the module itself."""
    bound = float(module.lipschitz_bound())
    if not (math.isfinite(bound) and bound >= 0):
        raise InputError(f"its lipschitz_bound() is {bound}, which is no bound.")
    return bound


def regions(module: nn.Module, program: Program, whole: bool) -> dict[fx.Node, Region]:
    """The regions of a graph by their nodes, the outermost ones; `whole` says whether the network itself may be one."""
    modules = dict(module.named_modules(remove_duplicate=False))
    calls: dict[tuple[int, str], list[fx.Node]] = {}
    owners: dict[tuple[int, str], tuple[str, nn.Module, rules.Rule]] = {}
    for node in program.calls:
        if node in program.constants:
            continue
        for depth, (key, (name, kind)) in enumerate(node.meta.get("nn_module_stack", {}).items()):
            owner = modules.get(name)
            if owner is None or (owner is module and not whole) or _path(type(owner)) != _text(kind):
                continue
            if (rule := trusted(owner)) is not None:
                calls.setdefault((depth, key), []).append(node)
                owners[depth, key] = (name, owner, rule)
    found: dict[fx.Node, Region] = {}
    returned = program.returned()
    for call in sorted(calls):
        nodes = frozenset(calls[call])
        ends = None if nodes & found.keys() else _ends(nodes, program)
        if ends and returned.get(call) == [ends[1]]:
            found |= dict.fromkeys(nodes, Region(*owners[call], *ends, nodes))
    return found


def _ends(nodes: frozenset[fx.Node], program: Program) -> tuple[fx.Node, fx.Node] | None:
    """The one node whose value goes into a region and the one whose value comes out, or None."""
    sources = {source for node in nodes for source in node.all_input_nodes} - nodes - program.constants.keys()
    results = {node for node in nodes if any(user not in nodes and user.target not in CHECKS for user in node.users)}
    return (sources.pop(), results.pop()) if len(sources) == len(results) == 1 else None


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _text(kind: Any) -> str:
    return kind if isinstance(kind, str) else _path(kind)
