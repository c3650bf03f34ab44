"""The arguments of an attack, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from smoothcert.attacks.ascent import Bounds
from smoothcert.attacks.gradients import differentiable
from smoothcert.classifier import as_input
from smoothcert.errors import InputError
from smoothcert.modules import device_of
from smoothcert.sampling.blocks import Input


@dataclass(frozen=True)
class Targets:
    """Inputs of one shape, and the class that each shall lose."""

    inputs: list[Input]
    x: NDArray[np.float32]
    labels: NDArray[np.int64]

    def in_each(self, radii: NDArray[np.float64]) -> tuple[list[Input], NDArray[np.int64], NDArray[np.float64]]:
        """Every input with every radius: inputs, labels and radii of as many ascents."""
        inputs = [source for source in self.inputs for _ in radii]
        return inputs, self.labels.repeat(len(radii)), np.tile(radii, len(self.x))


def check_targets(module: nn.Module, xs: Sequence[Any], labels: ArrayLike, bounds: Bounds) -> Targets:
    """At least one input, all of one shape and in the box where there is one, each with one of the model's classes."""
    inputs = [as_input(x) for x in xs]
    if len({source.array.shape for source in inputs}) != 1:
        raise InputError("an attack takes one input or more, all of one shape: bring them to one shape.")
    x = np.stack([source.array for source in inputs])
    if bounds is not None and not (bounds[0] < bounds[1] and bounds[0] <= x.min() and x.max() <= bounds[1]):
        raise InputError(f"an input has values outside the box {bounds}: leave the box out, or scale the inputs.")
    with differentiable(module) as scores:
        num_classes = scores(torch.from_numpy(x[:1]).to(device_of(module))).shape[1]
    y = np.asarray(labels)
    if y.shape != (len(x),) or y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= num_classes:
        raise InputError(f"labels must be one whole number below {num_classes} for each of the {len(x)} inputs.")
    return Targets(inputs, x, y.astype(np.int64))


def check_eps(eps: ArrayLike) -> NDArray[np.float64]:
    """Radii to search, ascending."""
    try:
        radii = np.unique(np.asarray(eps, dtype=np.float64))
    except (TypeError, ValueError):
        radii = np.empty(0)
    if not len(radii) or not np.all((radii > 0) & np.isfinite(radii)):
        raise InputError(f"eps must be positive numbers such as 0.25 or [0.25, 0.5], got {eps!r}.")
    return radii
