"""Engines: a callable from a batch to scores or labels, plus an identity.

`open_engine` picks one for a model. The engine's identity is part of a run's: the classifier that is certified is
the one that runs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from smoothcert.errors import InputError
from smoothcert.sampling.engines.base import Engine
from smoothcert.sampling.engines.function import FunctionEngine
from smoothcert.sampling.engines.onnx import OnnxEngine
from smoothcert.sampling.engines.pytorch import TorchEngine

ENGINES = ("auto", "torch", "onnx")


def open_engine(model: torch.nn.Module | Callable[..., Any] | Path, name: str = "auto") -> Engine:
    """The engine that runs `model`: torch for a module unless onnx is asked for, ONNX Runtime for the path of an .onnx
    file, else the callable itself on NumPy batches.
    """
    if name not in ENGINES:
        raise InputError(f"unknown engine {name!r}: choose one of {', '.join(ENGINES)}.")
    if isinstance(model, Path):
        return OnnxEngine(model)
    if isinstance(model, torch.nn.Module):
        return OnnxEngine(model) if name == "onnx" else TorchEngine(model)
    if not callable(model):
        raise InputError(
            f"a model must be a torch module or a callable from a NumPy batch to scores or labels, "
            f"got {type(model).__name__}."
        )
    return FunctionEngine(model)


__all__ = ["ENGINES", "Engine", "FunctionEngine", "OnnxEngine", "TorchEngine", "open_engine"]
