"""Models as callers bring them, and what is done with those that are torch modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from smoothcert.errors import InputError

Model = torch.nn.Module | Callable[..., Any] | Path
"""A torch module, any callable from a NumPy batch to scores or labels, or the path of an .onnx file."""


def require_module(model: Any, why: str) -> torch.nn.Module:
    """The model, where it is a torch module; else `why` one is needed is said."""
    if not isinstance(model, torch.nn.Module):
        raise InputError(why)
    return model


def device_of(module: torch.nn.Module) -> torch.device:
    """Where the module's weights are."""
    return next((t.device for t in (*module.parameters(), *module.buffers())), torch.device("cpu"))


def batch_statistics(module: torch.nn.Module) -> str | None:
    """The name of the first batch norm that takes its statistics from the batch though the module is evaluating."""
    with evaluating(module):
        norms = ((name, m) for name, m in module.named_modules() if isinstance(m, _BatchNorm))
        return next((name for name, m in norms if m.training or m.running_mean is None), None)


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """The module in evaluation mode; each part of it is put back as it was."""
    training = [m for m in module.modules() if m.training]
    module.eval()
    try:
        yield
    finally:
        for m in training:
            m.training = True
