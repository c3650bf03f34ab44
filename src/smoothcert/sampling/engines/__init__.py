"""Engines: a callable from a batch to scores or labels, plus an identity.

`open_engine` opens one by name. The engine's identity is part of a run's: the classifier that is certified is the one
that runs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Lock

import torch

from smoothcert.errors import InputError
from smoothcert.modules import Model, evaluated, require_module
from smoothcert.sampling.engines.base import Engine
from smoothcert.sampling.engines.compiled import CompiledEngine
from smoothcert.sampling.engines.function import FunctionEngine
from smoothcert.sampling.engines.halving import HalvingEngine
from smoothcert.sampling.engines.int8 import Int8Engine
from smoothcert.sampling.engines.module import ModuleEngine, state_of
from smoothcert.sampling.engines.onnx import OnnxEngine, OnnxFileEngine
from smoothcert.sampling.engines.pytorch import TorchEngine
from smoothcert.sampling.engines.quantising import Quantised
from smoothcert.sampling.identity import INT8, Identity

_FAMILIES: dict[str, type[ModuleEngine]] = {"torch": TorchEngine, "compile": CompiledEngine, "onnx": OnnxEngine}
ENGINES = ("auto", *_FAMILIES)
NO_MODULE = f"engine {INT8} quantises torch modules: leave it out."


def open_engine(model: Model, name: str = "auto", made: Quantised | None = None) -> Engine:
    """The engine of that name for a torch module; a file or a callable has one engine, whatever the name.

    A name is a family and its options, as in "torch+folded+channels-last" or "compile+bf16". "auto" stands for plain
    eager PyTorch here: `sampling.choice` measures. "onnx+int8" runs the network that was `made` of the module.
    """
    family, *options = name.split("+") if isinstance(name, str) else [name]
    if family not in ENGINES:
        raise InputError(f"unknown engine {name!r}: choose one of {', '.join(ENGINES)}.")
    if name == INT8:
        return Int8Engine(require_module(model, NO_MODULE), made)
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


class Engines:
    """A model, and the engines that were opened for it: each once."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._opened: dict[str, Engine] = {}
        self._opening = Lock()
        self._quantised: Quantised | None = None

    def __getstate__(self) -> tuple[Model, Quantised | None, bool]:
        """For pickle and copy: the model, the network that was made of it, and whether that is still its own."""
        made = self._quantised
        return self.model, made, made is not None and made.source == self._state()

    def __setstate__(self, state: tuple[Model, Quantised | None, bool]) -> None:
        model, made, unchanged = state
        Engines.__init__(self, model)
        self._quantised = replace(made, source=self._state()) if made is not None and unchanged else made

    def _state(self) -> str:
        return state_of(evaluated(require_module(self.model, NO_MODULE)))

    @property
    def quantised(self) -> Quantised | None:
        """The network that `onnx+int8` runs."""
        return self._quantised

    @quantised.setter
    def quantised(self, made: Quantised | None) -> None:
        with self._opening:
            self._quantised = made
            self._opened.pop(INT8, None)

    def renew(self) -> None:
        """Forgets the engines, so that each is made of the model as it is now."""
        with self._opening:
            self._opened.clear()

    def open(self, name: str = "torch") -> Engine:
        """The engine of that name; "auto" is plain eager PyTorch here."""
        name = "torch" if name == "auto" else name
        with self._opening:
            if name not in self._opened:
                self._opened[name] = open_engine(self.model, name, self._quantised)
            return self._opened[name]


def name_of(identity: Identity) -> str:
    """The name that opens an engine of this identity again; "torch", which says nothing of them, for other models."""
    return identity.engine if identity.engine.split("+")[0] in _FAMILIES else "torch"


__all__ = [
    "ENGINES",
    "INT8",
    "NO_MODULE",
    "Engine",
    "Engines",
    "HalvingEngine",
    "Quantised",
    "TorchEngine",
    "name_of",
    "open_engine",
]
