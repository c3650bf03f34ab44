"""ONNX Runtime on the CPU in integers of eight bits: a quantised copy of a module, certified as itself."""

from __future__ import annotations

from dataclasses import replace

import torch

from smoothcert.errors import InputError
from smoothcert.sampling.engines.module import Network
from smoothcert.sampling.engines.onnx import Graph, OnnxEngine
from smoothcert.sampling.engines.quantising import Quantised
from smoothcert.sampling.identity import Identity

CHANGED = "the model has changed since it was quantised: make a new classifier of it."


class Int8Engine(OnnxEngine):
    """Runs the network that `quantising` has made of the module: it has to be there before the first batch.

    The hash of that network is part of the identity. It is not made anew when the module changes: then it is refused.
    """

    options_known = ("int8",)

    def __init__(self, module: torch.nn.Module, made: Quantised | None) -> None:
        super().__init__(module, self.options_known)
        self.made = made

    @property
    def identity(self) -> Identity:
        return replace(super().identity, network=self.made.digest if self.made else "")

    def precision(self) -> str:
        return "int8"

    def build(self, batch: torch.Tensor) -> Network:
        if self.made is None:
            raise InputError("engine onnx+int8 has no network yet: a SmoothedClassifier quantises one.")
        if self.made.source != self._state:
            raise InputError(CHANGED)
        return Graph(self.made.content, "the quantised model")
