"""The ℓ2 constant of a model's scores, as a radius needs it: given, the product of the layers, or a local estimate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.lipschitz.local import local
from smoothcert.lipschitz.product import product
from smoothcert.modules import device_of, evaluated, require_module

PRODUCT, LOCAL = "product", "local"
LEAST = 1e-9  # a flat network, or a search that found no slope: a radius needs a positive constant
COARSE = (
    "the model computes in a type coarser than float32 on the way, and rounding makes a staircase, which is not "
    "Lipschitz: let it compute in float32, or leave out the constant."
)
NEEDS_LAYERS = "a Lipschitz constant is found from the layers of a torch module: give such a model."


def check_source(lipschitz: float | str | None, model: Any) -> None:
    """Refuses a model without layers where a constant is to be found from them."""
    if isinstance(lipschitz, str):
        require_module(model, NEEDS_LAYERS)


def scores_constant(lipschitz: float | str | None, model: Any, shape: Sequence[int]) -> float | None:
    """The ℓ2 constant of the scores: what the caller vouches for, or proved from the layers; None of a local one."""
    if lipschitz == PRODUCT:
        bound = product(evaluated(require_module(model, NEEDS_LAYERS)), shape)
        value = bound.value
        if bound.coarse:
            raise InputError(COARSE)
        if not 0 < value < math.inf:
            raise InputError(f"the product of the layers is {value}, which gives no radius: leave out the constant.")
        return value
    return None if lipschitz is None or lipschitz == LOCAL else float(lipschitz)


def local_constants(model: Any, arrays: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """The constant of the scores near each of the inputs, estimated from below (`lipschitz.local`)."""
    module = evaluated(require_module(model, NEEDS_LAYERS))
    values = local(module, torch.from_numpy(np.stack(arrays)).to(device_of(module)))
    return np.array([max(float(value), LEAST) for value in values])
