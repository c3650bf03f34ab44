"""How steep a model's scores are, as a radius needs it: given, proved from the layers, or a local estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.lipschitz.graph import scores
from smoothcert.lipschitz.local import local
from smoothcert.lipschitz.product import product
from smoothcert.lipschitz.regions import answers
from smoothcert.lipschitz.walk import LastLayer
from smoothcert.modules import as_weights, device_of, evaluated, require_module

PRODUCT, LOCAL = "product", "local"
LEAST = 1e-9  # a flat network, or a search that found no slope: a radius needs a positive constant
COARSE = (
    "the model computes in a type coarser than float32 on the way, and rounding makes a staircase, which is not "
    "Lipschitz: let it compute in float32, or leave out the constant."
)
NEEDS_LAYERS = "a Lipschitz constant is found from the layers of a torch module: give such a model."


@dataclass(frozen=True)
class Steepness:
    """`scores` bounds the ℓ2 constant of the vector of scores, `pairs[k, j]` that of `f_k − f_j`, 0 where k = j."""

    scores: float
    pairs: NDArray[np.float64]


def check_source(lipschitz: float | str | None, model: Any) -> None:
    """Refuses a model without layers where a constant is to be found from them."""
    if isinstance(lipschitz, str):
        require_module(model, NEEDS_LAYERS)


def steepness(model: Any, shape: Sequence[int]) -> Steepness:
    """What is proved from the layers.

    `K_kj = √2 L`, since `|u_k − u_j| ≤ √2 ‖u‖`; where the last layer is linear with rows w and L′ bounds what comes
    before it, `K_kj = L′ ‖w_k − w_j‖` if that is less.
    """
    module = evaluated(require_module(model, NEEDS_LAYERS))
    bound = whole = product(module, shape)
    if answers(module) and list(module.children()):
        try:
            bound = product(module, shape, inside=True)
        except InputError:  # it answers for itself because there are no rules for what is inside
            bound = whole
    if whole.coarse or bound.coarse:
        raise InputError(COARSE)
    value = min(whole.value, bound.value)
    if not 0 < value < math.inf:
        raise InputError(f"the product of the layers is {value}, which gives no radius: leave out the constant.")
    classes = _classes(module, shape)
    pairs = math.sqrt(2) * value * (1 + 2**-50) * (1 - np.eye(classes))
    if bound.last is not None:
        pairs = np.minimum(pairs, _by_rows(bound.last))
    return Steepness(value, pairs)


def _by_rows(last: LastLayer) -> NDArray[np.float64]:
    """`L′ ‖w_k − w_j‖`, rounded up."""
    rows = last.weight.numpy()
    lengths = np.stack([np.linalg.norm(rows - row, axis=1) for row in rows])
    return np.asarray(last.before * lengths * (1 + (rows.shape[1] + 8) * 2**-52))


def _classes(module: torch.nn.Module, shape: Sequence[int]) -> int:
    with torch.no_grad():
        found = scores(module, as_weights(module, torch.zeros(2, *shape)))
    if found.ndim != 2 or found.shape[1] < 2:
        raise InputError(f"the model returns {tuple(found.shape)} for two inputs: it must return scores (N, classes).")
    return int(found.shape[1])


def local_constants(
    model: Any,
    arrays: Sequence[NDArray[np.float32]],
    shares: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> NDArray[np.float64]:
    """The constant near each of the inputs, estimated from below (`lipschitz.local`).

    It is that of the scores; or, where `shares` maps scores to shares of a vote, the larger one of the shares of the
    two classes that lead at the input: these are the ones that a radius compares.
    """
    module = evaluated(require_module(model, NEEDS_LAYERS))
    x = torch.from_numpy(np.stack(arrays)).to(device_of(module))
    if shares is None:
        values = local(module, x)
    else:
        votes = _Votes(module, shares).eval()
        with torch.no_grad():
            leading = votes(x).topk(2, dim=1).indices
        values = torch.maximum(*(local(votes, x, of="class", classes=classes) for classes in leading.T))
    return np.array([max(float(value), LEAST) for value in values])


class _Votes(torch.nn.Module):
    """A network whose scores are shares of a vote."""

    def __init__(self, module: torch.nn.Module, shares: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.module, self.shares = module, shares

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shares(self.module(x))
