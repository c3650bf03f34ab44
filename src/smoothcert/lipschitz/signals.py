"""A tensor that depends on the network's input, and which row of the batch each of its entries belongs to.

The rows are followed entry by entry: an operation that moves entries moves their labels, one that acts along axes asks
that the entries it brings together belong to one row. So a bound is that of one input, whatever else is in its batch,
also where a network folds the batch into another axis and back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from smoothcert.errors import InputError
from smoothcert.lipschitz.spectral import Convolution, PaddingMode

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Padding:
    """A padding whose norm has not been taken yet: (before, after) for the last axes, the last one first."""

    size: Shape
    pairs: tuple[tuple[int, int], ...]
    mode: PaddingMode
    norm: float


@dataclass(frozen=True)
class Signal:
    """A tensor that depends on the input of the network: its shape and the Lipschitz bound of that dependence.

    `pending` is a linear operation whose norm has not been taken yet, and `bound` is then that of what went into it:
    a batch normalisation folds itself into the convolution before it, a convolution into the padding. `rows` labels
    every entry with the row of the batch that it depends on, from 1, and with 0 where it is a constant. A bound that
    is infinite marks what jumps: whole numbers and truth values.
    """

    shape: Shape
    bound: float
    rows: Tensor
    pending: Convolution | Padding | None = None
    name: str = ""
    kind: str = ""


RowRule = Callable[..., Tensor]


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


def bound_of(value: Any) -> float:
    return value.bound if isinstance(value, Signal) else 0.0


def repeats(x: Signal, shape: Shape) -> float:
    """The norm of broadcasting a signal to a shape: the root of how often each entry is used."""
    return math.sqrt(math.prod(shape) / max(math.prod(x.shape), 1))


def spread(value: Any, shape: Shape) -> float:
    """The bound of an operand after broadcasting."""
    return value.bound * repeats(value, shape) if isinstance(value, Signal) else 0.0


# How the rows of the output follow from those of the inputs, by the arguments of the operation.


def batch_rows(shape: Shape) -> Tensor:
    """Labels of a tensor whose first axis is the batch."""
    labels = torch.arange(1, shape[0] + 1, dtype=torch.int8)
    return labels.reshape(-1, *(1 for _ in shape[1:])).expand(shape)


def is_batch(x: Signal, batch: int) -> bool:
    """Is the first axis the batch, each row for itself?"""
    if not x.shape or x.shape[0] != batch:
        return False
    return bool(((x.rows == 0) | (x.rows == batch_rows(x.shape))).all())


def entrywise(shape: Shape, *arguments: Any, **options: Any) -> Tensor:
    """Each entry of the output is made of the entries that broadcasting puts in its place."""
    rows = torch.zeros(shape, dtype=torch.int8)
    for x in signals(arguments, options):
        other = x.rows.expand(shape)
        if bool(((rows != 0) & (other != 0) & (rows != other)).any()):
            raise InputError(MIXES)
        rows = torch.maximum(rows, other)
    return rows


def together(axes: Sequence[int], shape: Shape, x: Signal) -> Tensor:
    """The entries along the axes are brought together, and the output has the axes that remain, or as many."""
    axes = sorted({axis % x.rows.ndim for axis in axes}) if x.rows.ndim else []
    whole = x.rows.amax(axes, keepdim=True) if axes and x.rows.numel() else x.rows
    if bool(((x.rows != 0) & (x.rows != whole)).any()):
        raise InputError(MIXES)
    return (whole if len(shape) == x.rows.ndim else whole.squeeze(axes)).expand(shape)


def within(shape: Shape, *arguments: Any, **options: Any) -> Tensor:
    """The first axis is the batch, and everything else may be brought together."""
    found = [together(range(1, len(x.shape)), (x.shape[0], *(1 for _ in x.shape[1:])), x) for x in signals(arguments)]
    flat = [rows.reshape(len(rows), *(1 for _ in shape[1:])) for rows in found]
    return entrywise(shape, *(Signal(tuple(rows.shape), 0.0, rows) for rows in flat))


def last_axes(count: int) -> RowRule:
    """The last axes are brought together."""
    return lambda shape, x, *arguments, **options: together(range(-count, 0), shape, x)


def along(shape: Shape, x: Signal, dim: Any = None, *arguments: Any, **options: Any) -> Tensor:
    """The axes of the argument `dim`, all of them where there is none."""
    axes = (dim,) if isinstance(dim, int) else tuple(dim or range(len(x.shape)))
    return together(axes, shape, x)


MIXES = "it mixes the rows of a batch, so that an input's scores would depend on the other inputs."
