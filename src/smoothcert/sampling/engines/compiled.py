"""TorchInductor: the module compiled for one batch shape, its weights frozen into the code."""

from __future__ import annotations

from copy import deepcopy

import torch

from smoothcert.errors import InputError
from smoothcert.sampling.engines.module import BF16, ModuleEngine, Network


class CompiledEngine(ModuleEngine):
    """`torch.compile` with freezing, which folds batch norms and chooses layouts. The first batch takes a minute."""

    family = "compile"
    options_known = (BF16,)

    def build(self, batch: torch.Tensor) -> Network:
        # A copy, because freezing keeps the weights it has seen, and torch keeps what it compiled for a module.
        network: Network = torch.compile(deepcopy(self._own), dynamic=False, options={"freezing": True})
        try:
            network(batch)
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(f"the model cannot be compiled ({reason}): use engine torch.") from error
        return network
