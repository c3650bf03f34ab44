"""What a module runs, operation by operation, as torch dispatches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

_SAME = {aten.detach.default, aten.alias.default, aten.lift_fresh.default}
_CHECKS = {aten._assert_tensor_metadata.default, aten.sym_size.int}


class _From(int):
    """The number of the operation that a tensor comes from; the input is −1, and −2 other places in written memory."""


class Record(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operations on what depends on the input, each with its arguments: tensors that depend on it by their origin,
    all else as it is; and the floating types in which they were computed."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[tuple[Any, list[Any]]] = []
        self.types: set[torch.dtype] = set()
        self._origins = {id(x): _From(-1)}
        self._memory = {x.untyped_storage().data_ptr()}
        self._alive = [x]  # no other tensor takes the place of one in memory

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = [self.origin(leaf) for leaf in pytree.tree_leaves((args, kwargs or {}))]
        result = operation(*args, **(kwargs or {}))
        known = [value for value in inputs if isinstance(value, _From)]
        if not known or operation in _CHECKS:
            return result
        if operation not in _SAME:
            self.operations.append((operation, inputs))
        origin = known[0] if operation in _SAME else _From(len(self.operations) - 1)
        for tensor in (leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)):
            self._origins[id(tensor)] = origin
            self.types |= {tensor.dtype} if tensor.is_floating_point() else set()
            self._memory.add(tensor.untyped_storage().data_ptr())
            self._alive.append(tensor)
        return result

    def origin(self, value: Any) -> Any:
        """What stands for an argument."""
        if not isinstance(value, Tensor):
            return value
        written = value.numel() > 0 and value.untyped_storage().data_ptr() in self._memory
        return self._origins.get(id(value), _From(-2) if written else value)


def same(one: Callable[[Tensor], Tensor], other: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    """Do two functions run the same operations on the batch x, in one order and with the same arguments?"""
    (mine, result), (theirs, outcome) = (_recorded(function, x.clone()) for function in (one, other))
    return (
        len(mine) == len(theirs)
        and _alike(result, outcome)
        and all(
            a == b and len(ours) == len(yours) and all(map(_alike, ours, yours))
            for (a, ours), (b, yours) in zip(mine, theirs, strict=True)
        )
    )


def _recorded(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[list[tuple[Any, list[Any]]], Any]:
    with torch.backends.cudnn.flags(enabled=False), Record(x) as record:  # as in torch.export, whose graph names it
        result = function(x)
    return record.operations, record.origin(result)


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        same = a.shape == b.shape and a.dtype == b.dtype
        return same and (a.data_ptr() == b.data_ptr() or torch.allclose(a, b, rtol=0.0, atol=0.0, equal_nan=True))
    return type(a) is type(b) and bool(a == b)
