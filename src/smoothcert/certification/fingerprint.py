"""Which model a run is about: a hash of its weights and of its code, kept in the file and compared when it goes on.

A fingerprint says how it was made, and in which version of that way:

graph-2     a torch module, from what `torch.export` records of it for any number of rows: the operations in order with
            their constants, no names, paths or devices; and those that it runs when it is certified, where they differ
graph-1     the exported operations alone, of older runs
code-1      a module that does not export: the tensors and values that it and its parts hold, and their classes' code
callable-1  any other callable: its bytecode, and the values that it closes over or names

An .onnx file has the SHA-256 of its content. Runs of formats 1 and 2 keep theirs: a hash of weights and structure, or
the name of a callable.
"""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from smoothcert.description import Description, tensor_bytes
from smoothcert.errors import InputError
from smoothcert.lipschitz.record import same
from smoothcert.modules import Model, device_of, evaluated, held_tensors, warm_up
from smoothcert.sampling.engines import open_engine

logger = logging.getLogger(__name__)
NAMESPACES = {"aten", "prim", "prims", "higher_order", "quantized", "quantized_decomposed", "_c10d_functional"}
"""Where torch keeps its own operations."""

GRAPH, CODE, CALLABLE = "graph-2", "code-1", "callable-1"
GRAPH_ALONE = "graph-1"


def fingerprint_of(model: Model, shape: Sequence[int], earlier: str = "") -> str:
    """The fingerprint of a model of inputs of this shape, made in the way of an `earlier` one to compare it with."""
    way = earlier.partition(":")[0] if ":" in earlier else ""
    if isinstance(model, Path) or (earlier and way not in (GRAPH, GRAPH_ALONE, CODE, CALLABLE)):
        return open_engine(model).fingerprint
    if not isinstance(model, torch.nn.Module):
        return f"{CALLABLE}:{_described(model)}"
    x = torch.zeros((2, *shape), device=device_of(model))
    found = None if way == CODE else _graph(_warm(model, x), x)
    if found is None:
        return f"{CODE}:{_code(_warm(model, x), x)}"
    graph, program = found
    if way == GRAPH_ALONE:
        return f"{GRAPH_ALONE}:{graph}"
    beside = _beside(_warm(model, x), program, x)
    return f"{GRAPH}:{hashlib.sha256(f'{graph} {beside}'.encode()).hexdigest() if beside else graph}"


def _warm(module: torch.nn.Module, x: torch.Tensor) -> torch.nn.Module:
    """As it is once it has run."""
    copied = evaluated(module)
    warm_up(copied, x)
    return copied


def _described(model: Model) -> str:
    description = Description()
    try:
        description.add(model)
    except Exception as error:  # what a model holds may raise anything when it is looked at
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"what the model holds cannot be looked at ({reason}): give one without that object."
        ) from error
    unseen = "".join(f", {name}" for name in sorted(description.opaque))
    logger.info(
        "the run knows its model by its code and by the values it holds; what it reads elsewhere (files, servers, "
        "other modules%s) cannot be seen, and must stay the same.",
        unseen,
    )
    return description.hexdigest()


def _code(module: torch.nn.Module, x: torch.Tensor) -> str:
    """A hash of what a module holds, and of the code of operations that it runs by their names."""
    operations = _Operations(module, x)
    with operations:
        warm_up(module, x)
    told, own = _described(module), [*_own_operations(operations.met)]
    return hashlib.sha256(b"".join([told.encode(), *own])).hexdigest() if own else told


def _beside(module: torch.nn.Module, program: torch.export.ExportedProgram, x: torch.Tensor) -> str:
    """Nothing where the module runs what was exported, else a hash of what it runs; where that cannot be recorded, of
    its code. It may ask whether it is compiled, or for the type of its input, and export chooses other operations."""
    try:
        with torch.inference_mode():
            if same(module, program.module(), torch.zeros_like(x)):
                return ""
            given = torch.zeros_like(x)
            operations = _Operations(module, given)
            with operations:
                module(given)
        operations.require_whole()
    except Exception:
        return _code(module, x)
    for part in _own_operations(operations.met):
        operations.digest.update(part)
    return operations.digest.hexdigest()


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A hash of the operations that run on x: tensors by the operation that they come from, or by their values where
    the module holds them, all else but devices as it is."""

    def __init__(self, module: torch.nn.Module, x: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.digest, self.met = hashlib.sha256(), set[Any]()
        self._held = {id(tensor) for _, tensor in held_tensors(module)}
        self._origins = {id(x): "%0"}
        self._alive = [x]  # no other tensor gets the id of one
        self._left = False

    def require_whole(self) -> None:
        """Whatever was computed outside torch, from numbers or for a tensor, is no part of the hash."""
        if self._left:
            raise TypeError("some of it is not computed by torch")

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.met.add(operation)
        given, shape = pytree.tree_flatten((args, kwargs or {}))
        self.digest.update(f"{operation} {shape}".encode())
        for value in given:
            self._add(value)
        result = operation(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._origins.setdefault(id(leaf), f"%{len(self._alive)}")
                self._alive.append(leaf)
            elif leaf is not None and operation is not torch.ops.aten.sym_size.int:
                self._left = True
        return result

    def _add(self, value: Any) -> None:
        if isinstance(value, torch.Tensor) and id(value) not in self._origins:
            self._left |= id(value) not in self._held
            for part in tensor_bytes(value):
                self.digest.update(part)
        elif isinstance(value, torch.Tensor):
            self.digest.update(f"{self._origins[id(value)]} ".encode())
        else:
            try:
                self.digest.update(f"{_text(value, {})} ".encode())
            except TypeError:  # an object of C's
                self._left = True


def _graph(module: torch.nn.Module, x: torch.Tensor) -> tuple[str, torch.export.ExportedProgram] | None:
    """A hash of the exported graph, and what was exported; None where it does not export for any number of rows."""
    torch_logs = logging.getLogger("torch")
    level = torch_logs.level
    torch_logs.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
            warnings.simplefilter("ignore")
            free = ({0: torch.export.Dim("batch")},)
            program = torch.export.export(module, (x,), dynamic_shapes=free, strict=False)
            digest = hashlib.sha256()
            for part in (*_lines(program), *_own_operations(_operations(program))):
                digest.update(part)
            return digest.hexdigest(), program
    except Exception:
        return None
    finally:
        torch_logs.setLevel(level)


def _lines(program: torch.export.ExportedProgram) -> Iterator[bytes]:
    """The graph in a canonical form, and every tensor where it enters."""
    held = {**program.state_dict, **program.constants}
    specs = iter(program.graph_signature.input_specs)
    yield from _nodes(program.graph_module, lambda: held.get(next(specs).target or ""))


def _operations(program: torch.export.ExportedProgram) -> Iterator[Any]:
    for part in program.graph_module.modules():
        yield from (node.target for node in getattr(part, "graph", torch.fx.Graph()).nodes)


def _own_operations(operations: Iterable[Any]) -> Iterator[bytes]:
    """The Python code of those that are not torch's; of others the name is all that can be seen, which is said."""
    used = {str(operation._schema.name) for operation in operations if isinstance(operation, torch._ops.OpOverload)}
    for name in sorted(name for name in used if name.partition("::")[0] not in NAMESPACES):
        description = Description()
        known = OPDEFS.get(name)
        if known is None:
            logger.info("the run knows the operation %s by its name alone: its code must stay the same.", name)
        else:
            description.add(known._init_fn)
            description.add(dict(known._backend_fns))
        yield f"{name} {description.hexdigest()}\n".encode()


def _nodes(module: torch.fx.GraphModule, enters: Any) -> Iterator[bytes]:
    """A line each node; `enters` gives what stands behind the next placeholder, None for an input."""
    numbers: dict[torch.fx.Node, str] = {}
    for node in module.graph.nodes:
        value = enters() if node.op == "placeholder" else None
        if node.op == "get_attr":
            value = _attribute(module, str(node.target))
        if not node.users and node.op in ("placeholder", "get_attr"):
            continue
        numbers[node] = f"%{len(numbers)}"
        target = node.target if node.op == "call_function" else ""
        line = f"{node.op} {_name(target)} {_text(node.args, numbers)} {_text(node.kwargs, numbers)}\n"
        yield line.encode()
        if isinstance(value, torch.fx.GraphModule):
            yield b"{\n"
            yield from _nodes(value, lambda: None)
            yield b"}\n"
        elif isinstance(value, torch.Tensor):
            yield from tensor_bytes(value)
        elif value is not None:
            raise TypeError(f"a {type(value).__name__} in a graph")


def _attribute(module: torch.nn.Module, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _name(target: Any) -> str:
    """An operation by its own name."""
    if isinstance(target, str | torch._ops.OperatorBase):
        return str(target)
    return f"{target.__module__}.{target.__qualname__}"


def _text(value: Any, numbers: dict[torch.fx.Node, str]) -> str:
    """An argument: nodes by their numbers, no device."""
    if isinstance(value, torch.fx.Node):
        return numbers[value]
    if isinstance(value, torch.device):
        return "device"
    if isinstance(value, tuple | list):
        return f"[{', '.join(_text(entry, numbers) for entry in value)}]"
    if isinstance(value, dict):
        return f"[{', '.join(f'{key}={_text(value[key], numbers)}' for key in sorted(value))}]"
    if isinstance(value, slice):
        return _text((value.start, value.stop, value.step), numbers)
    if value is None or isinstance(value, bool | int | float | complex | str | torch.dtype | torch.layout):
        return repr(value)
    if isinstance(value, torch.memory_format):
        return str(value)
    raise TypeError(f"a {type(value).__name__} in a graph")
