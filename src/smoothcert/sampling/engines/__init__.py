"""Engines: a callable from a batch to scores or labels, plus an identity.

`open_engine` opens one by name. The engine's identity is part of a run's: the classifier that is certified is the one
that runs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from smoothcert.errors import InputError
from smoothcert.sampling.engines.base import Engine
from smoothcert.sampling.engines.compiled import CompiledEngine
from smoothcert.sampling.engines.function import FunctionEngine
from smoothcert.sampling.engines.halving import HalvingEngine
from smoothcert.sampling.engines.module import ModuleEngine
from smoothcert.sampling.engines.onnx import OnnxEngine, OnnxFileEngine
from smoothcert.sampling.engines.pytorch import TorchEngine

Model = torch.nn.Module | Callable[..., Any] | Path
_FAMILIES: dict[str, type[ModuleEngine]] = {"torch": TorchEngine, "compile": CompiledEngine, "onnx": OnnxEngine}
ENGINES = ("auto", *_FAMILIES)


def open_engine(model: Model, name: str = "auto") -> Engine:
    """The engine of that name for a torch module; a file or a callable has one engine, whatever the name.

    A name is a family and its options, as in "torch+folded+channels-last" or "compile+bf16". "auto" stands for plain
    eager PyTorch here: `sampling.choice` measures.
    """
    family, *options = name.split("+") if isinstance(name, str) else [name]
    if family not in ENGINES:
        raise InputError(f"unknown engine {name!r}: choose one of {', '.join(ENGINES)}.")
    if isinstance(model, Path):
        return OnnxFileEngine(model)
    if isinstance(model, torch.nn.Module):
        return _FAMILIES["torch" if family == "auto" else family](model, tuple(options))
    if not callable(model):
        raise InputError(
            f"a model must be a torch module or a callable from a NumPy batch to scores or labels, "
            f"got {type(model).__name__}."
        )
    return FunctionEngine(model)


def name_of(identity: str) -> str:
    """The name that opens a module's engine with this identity again; "torch" where it was none."""
    name, bracket, _ = identity.partition(" (")
    return name if bracket and name.split("+")[0] in _FAMILIES else "torch"


__all__ = ["ENGINES", "Engine", "HalvingEngine", "Model", "TorchEngine", "name_of", "open_engine"]
