"""A wire across every proof: slopes of the module itself, none of which may exceed its bound.

It proves nothing. It is there to catch a rule that is wrong: the slopes come from the module as it runs, not from the
graph that the rules read.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from smoothcert.errors import InputError, RunError
from smoothcert.lipschitz.graph import scores
from smoothcert.lipschitz.record import Record
from smoothcert.modules import as_weights

_SCALES = (1.0, 1.0, 10.0, 0.1, 1.0, 10.0, 1.0, 1.0)
_LARGE = 1 << 14  # numbers in an input from which on fewer are tried


def points(module: nn.Module, shape: tuple[int, ...], near: Tensor | None = None, seed: int = 0) -> Tensor:
    """Random inputs of several sizes, in the type of the module's weights; half of them near data where given."""
    generator = torch.Generator().manual_seed(seed)
    scales = torch.tensor(_SCALES[: 8 if math.prod(shape) <= _LARGE else 4], dtype=torch.float64)
    x = torch.randn(len(scales), *shape, generator=generator, dtype=torch.float64) * _column(
        scales, torch.empty(1, *shape)
    )
    x[1] = x[1].abs().clamp_max(1)
    if near is not None and len(near):
        if near.shape[1:] != shape:
            raise InputError(f"`near` must be a batch of inputs of shape {shape}, not of {tuple(near.shape[1:])}.")
        count = min(len(near), len(x) // 2)
        x[-count:] = near[:count].detach().to(x) + 0.01 * x[-count:]
    return as_weights(module, x)


def steepest(module: nn.Module, x: Tensor, eps: float = 0.0) -> tuple[float, float]:
    """The largest slope found from the points x, and what rounding may add to it, as a part of it.

    From each point two kinds of slopes, each at most the constant: `‖Jᵀu‖` for a unit vector u of scores, and
    `‖f(x + hv) − f(x)‖ / h` for a unit vector v of inputs. v is the direction of Jᵀu and the next u that of the
    difference, which is power iteration on the Jacobian. In float64 where a copy of the module can be run in it and
    says what the module says; otherwise, and where it computes in a coarser type of this ε, 100 ε of the scores are
    taken off their difference.
    """
    own = torch.finfo(x.dtype).eps
    exact = doubled(module, x) if eps <= own else None
    run, x = (module, x) if exact is None else (exact, x.double())
    generator = torch.Generator().manual_seed(1)
    eps = max(eps, own) if exact is None else torch.finfo(x.dtype).eps
    with torch.no_grad():
        here = _vectors(scores(run, x.clone()))
    u = torch.randn(here.shape, generator=generator, dtype=torch.float64).to(here)
    v = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)
    largest = 0.0
    for step in range(3 if len(x) == len(_SCALES) else 2):
        gradient = _pull(run, x, _unit(u))
        if gradient is not None:
            largest = max(largest, _largest(_norms(gradient)))
            v = torch.where(_column(_norms(gradient), v) > 0, gradient, v)
        h = (1.0, 1e-2, 1e-4)[step] if exact is not None else (1.0, 0.3, 0.1)[step]
        away = x + h * _unit(v)
        with torch.no_grad():
            there = _vectors(scores(run, away.clone()))
        rounding = 100 * eps * (_norms(here) + _norms(there))
        gap, length = _norms(there - here), _norms(away - x)
        slopes = torch.where(length > 0, (gap - rounding).clamp_min(0) / length.clamp_min(1e-300), 0.0)
        largest = max(largest, _largest(slopes))
        u = torch.where(_column(gap, u) > 0, there - here, u)
    return largest, 1e-6 if exact is not None else math.sqrt(eps)


def check(module: nn.Module, bound: float, x: Tensor, eps: float = 0.0) -> None:
    """An error where the module, which computes in types of ε at most `eps`, is steeper than its bound."""
    slope, allowance = steepest(module, x, eps)
    if slope > bound * (1 + allowance):
        raise RunError(
            f"the module has a slope of {slope:.6g}, above its bound {bound:.6g}: one of the rules or of the bounds "
            "that were used for it is wrong, so do not use the bound, and please report it."
        )


def doubled(module: nn.Module, x: Tensor) -> nn.Module | None:
    """A copy that computes in float64 throughout and gives the module's scores, as far as those are exact."""
    try:
        twin, batch = copy.deepcopy(module).double(), x.double()
        with torch.no_grad():
            mine = scores(module, x.clone())
            with Record(batch) as record:
                exact = scores(twin, batch)
    except Exception:  # whatever a module raises that is not made for float64, or cannot be copied
        return None
    allowed = math.sqrt(torch.finfo(mine.dtype).eps) * float(exact.abs().max()) if exact.numel() else 0.0
    same = mine.shape == exact.shape and torch.allclose(mine.double(), exact.double(), rtol=0.0, atol=allowed)
    return twin if same and record.types <= {torch.float64} else None


def _pull(module: nn.Module, x: Tensor, u: Tensor) -> Tensor | None:
    """`Jᵀu` at each point, or None where the module has no gradient."""
    try:
        with torch.enable_grad():
            inputs = x.clone().requires_grad_()
            found = _vectors(scores(module, inputs.clone()))
            (gradient,) = torch.autograd.grad(found, inputs, u)
    except RuntimeError:
        return None
    return gradient.detach()


def _vectors(found: Tensor) -> Tensor:
    return found.reshape(len(found), -1)


def _norms(x: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(x.flatten(1).double(), dim=1)
    return norms


def _largest(values: Tensor) -> float:
    """A slope that is not a number says nothing."""
    return float(values.nan_to_num(0.0, posinf=0.0).max())


def _unit(x: Tensor) -> Tensor:
    return (x.double() / _column(_norms(x), x).clamp_min(1e-300)).to(x.dtype)


def _column(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape(-1, *(1 for _ in like.shape[1:]))
