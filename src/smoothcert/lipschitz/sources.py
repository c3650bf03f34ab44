"""Where the Lipschitz constant behind a radius comes from: given, the product of the layers, or a local estimate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.lipschitz.local import local
from smoothcert.lipschitz.product import product
from smoothcert.sampling.simplex import HARD, component_constant

GIVEN, PRODUCT, LOCAL = "given", "product", "local"
LEAST = 1e-9  # a flat network, or a search that found no slope: a radius needs a positive constant


def check_lipschitz(
    lipschitz: float | str | None, *, votes: str, temperature: float, noise: str, model: Any
) -> str | None:
    """Which source it is, or None; what does not go together is refused."""
    if lipschitz is None:
        return None
    if votes == HARD or not math.isfinite(component_constant(votes, temperature, 2)):
        raise InputError(
            f"{votes} votes jump, so no Lipschitz constant says anything about them: use softmax or sparsemax votes."
        )
    if noise != "gaussian":
        raise InputError(
            f"with {noise} noise the classifier rounds its input, which is not Lipschitz: use gaussian noise, or no "
            f"Lipschitz constant."
        )
    if isinstance(lipschitz, str):
        if lipschitz not in (PRODUCT, LOCAL):
            raise InputError(f"lipschitz must be a positive number, product or local, got {lipschitz!r}.")
        require_module(model)
        return lipschitz
    if isinstance(lipschitz, bool) or not isinstance(lipschitz, int | float) or not 0 < lipschitz < math.inf:
        raise InputError(f"lipschitz must be a positive number, product or local, got {lipschitz!r}.")
    return GIVEN


def require_module(model: Any) -> torch.nn.Module:
    """The model, if its layers can be looked at."""
    if not isinstance(model, torch.nn.Module):
        raise InputError("a Lipschitz constant is found from the layers of a torch module: give such a model.")
    return model


def scores_constant(lipschitz: float | str | None, model: Any, shape: Sequence[int]) -> float | None:
    """The ℓ2 constant of the scores: what the caller vouches for, or proved from the layers; None of a local one."""
    if lipschitz == PRODUCT:
        with _evaluating(model):
            value = product(model, shape).value
        if not 0 < value < math.inf:
            raise InputError(f"the product of the layers is {value}, which gives no radius: leave out the constant.")
        return value
    return None if lipschitz is None or lipschitz == LOCAL else float(lipschitz)


def local_constants(model: Any, arrays: Sequence[NDArray[np.float32]]) -> list[float]:
    """The constant of the scores near each of the inputs, estimated from below (`lipschitz.local`)."""
    module = require_module(model)
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    with _evaluating(module):
        values = local(module, torch.from_numpy(np.stack(arrays)).to(device))
    return [max(float(value), LEAST) for value in values]


@contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    training = [m for m in module.modules() if m.training]
    module.eval()
    try:
        yield
    finally:
        for m in training:
            m.training = True
