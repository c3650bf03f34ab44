"""Eager PyTorch on the model's own device."""

from __future__ import annotations

from copy import deepcopy

import torch

from smoothcert.sampling.engines.folding import fold_batch_norms
from smoothcert.sampling.engines.module import BF16, SINGLE_THREAD, ModuleEngine, Network

FOLDED, CHANNELS_LAST = "folded", "channels-last"


class TorchEngine(ModuleEngine):
    """The module as it is, or a copy with its batch norms `folded` into the layers before them, `channels-last`."""

    family = "torch"
    options_known = (FOLDED, CHANNELS_LAST, SINGLE_THREAD, BF16)

    def build(self, batch: torch.Tensor) -> Network:
        network = self.module
        with torch.inference_mode(False), torch.no_grad():
            if FOLDED in self.options:
                network = fold_batch_norms(network)
            elif CHANNELS_LAST in self.options:
                network = deepcopy(network)
        if CHANNELS_LAST not in self.options:
            return network
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return lambda rows: network(rows.contiguous(memory_format=torch.channels_last))
