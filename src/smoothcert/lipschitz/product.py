"""A Lipschitz bound of a whole network: its operations' bounds, combined along the graph of what ran."""

from __future__ import annotations

import math
import operator
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from smoothcert.errors import InputError
from smoothcert.lipschitz import graph, rules, spectral, tripwire
from smoothcert.lipschitz.graph import BATCH
from smoothcert.lipschitz.regions import answers, own_bound
from smoothcert.lipschitz.walk import LastLayer, Norm, Walk
from smoothcert.modules import evaluated, no_exit

Method = Literal["fourier", "gram", "power"]
LEAST, MOST = 1e-60, 1e60
"""Sizes of weights of which norms are taken; those of float32 are all between them."""

_NORMS: dict[str, Norm] = {"fourier": spectral.fourier, "gram": spectral.gram, "power": spectral.power}


@dataclass(frozen=True)
class Layer:
    """One operation of the network: its norm, and its share of the product, `log norm / Σ |log norm|`."""

    name: str
    kind: str
    norm: float
    share: float


@dataclass(frozen=True)
class LipschitzBound:
    """An upper bound of a network's ℓ2 → ℓ2 constant; *estimated* when its norms come from power iteration.

    `last` is the last layer where that is linear and the graph was looked into, else None; `eps` the ε of the coarsest
    type that the graph computes in.
    """

    value: float
    basis: Literal["proved", "estimated"]
    layers: tuple[Layer, ...]
    last: LastLayer | None = None
    eps: float = 0.0

    @property
    def coarse(self) -> bool:
        """Does the network compute in a type coarser than float32 on the way? What it computes is then a staircase."""
        return self.eps > torch.finfo(torch.float32).eps


@no_exit()
def product(
    module: nn.Module,
    input_shape: Sequence[int],
    method: Method = "fourier",
    *,
    inside: bool = False,
    near: Tensor | None = None,
) -> LipschitzBound:
    """A bound of `‖f(x) − f(y)‖₂ / ‖x − y‖₂` over all inputs x, y of one shape, such as (3, 32, 32).

    f is the module in evaluation mode, as the engines run it.

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
    if any(part.training for part in module.modules()):
        module = evaluated(module)
    check_weights(module)
    shape = _fitting(module, _checked(input_shape))
    x = tripwire.points(module, shape, near)
    whole = not (inside and list(module.children()))
    if whole and answers(module):  # what is inside need not be known
        graph.rows_alone(module, x)
        eps = 0.0
        value, last = own_bound((), module), None
        layers = [("itself", type(module).__name__, value)]
    else:
        one, many = (graph.trace(module, x[:batch].clone(), rules.operations()) for batch in (1, BATCH))
        for node, value in many.constants.items():
            if not isinstance(value, Tensor):
                continue
            if node.op == "placeholder":  # also what is no parameter and no buffer
                _check_values(f"the constant {node.name} of the module", value)
            elif any(user not in many.constants for user in node.users):  # what it makes of them, and computes with
                _check_sizes(f"the constant {node.name} of the module", value)
        walk = Walk(module, many, _NORMS[method], whole)
        value, last, layers = walk.bound(), walk.last(), walk.layers
        eps = many.eps
        graph.compare(one, many)
        graph.replay(module, one, many, x)
    if method != "power":
        tripwire.check(module, value, x, eps)
    logs = [math.log(norm) if norm > 0 else 0.0 for _, _, norm in layers]
    scale = sum(map(abs, logs)) or 1.0
    shares = tuple(Layer(*entry, log / scale) for entry, log in zip(layers, logs, strict=True))
    return LipschitzBound(value, "estimated" if method == "power" else "proved", shares, last, eps)


def check_weights(module: nn.Module) -> None:
    """Refuse weights that are not finite, or too large or too small for their norms."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        _check_values(f"{name} of the module", tensor)


def _check_values(name: str, tensor: Tensor) -> None:
    """Products and squares of what is let through stay far from where float64 ends."""
    if not tensor.is_floating_point():
        return
    if not tensor.isfinite().all():
        raise InputError(f"{name} is not finite: train or load it again.")
    _check_sizes(name, tensor)


def _check_sizes(name: str, tensor: Tensor) -> None:
    if not tensor.is_floating_point():
        return
    size = tensor.detach().double().abs()
    size = size[size.isfinite()]
    if bool(((size > MOST) | ((size > 0) & (size < LEAST))).any()):
        raise InputError(f"{name} has values beyond {MOST:g} or within {LEAST:g} of 0: rescale them, or set them to 0.")


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
