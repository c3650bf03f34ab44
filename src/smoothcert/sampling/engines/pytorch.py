"""Eager PyTorch on the model's own device."""

from __future__ import annotations

from copy import deepcopy

import torch

from smoothcert.errors import InputError
from smoothcert.sampling.engines.agreement import COARSE_TOLERANCE
from smoothcert.sampling.engines.folding import fold_batch_norms
from smoothcert.sampling.engines.module import BF16, TF32, ModuleEngine, Network

FOLDED, CHANNELS_LAST, LANES = "folded", "channels-last", "lanes"


class TorchEngine(ModuleEngine):
    """The module as it is, or a copy with its batch norms `folded` into the convolutions before them, `channels-last`.

    With `lanes` as many batches run at once as there are CPU threads, each on one. Only a folded copy may: it is a
    graph that keeps nothing between calls, and what a module's own code keeps, no one knows.
    """

    family = "torch"
    options_known = (FOLDED, CHANNELS_LAST, LANES, BF16, TF32)

    def one_thread_each(self) -> bool:
        if LANES in self.options and FOLDED not in self.options:
            raise InputError("engine option 'lanes' calls the model from several threads: use torch+folded+lanes.")
        return LANES in self.options

    def runs_a_copy(self) -> bool:
        return FOLDED in self.options or CHANNELS_LAST in self.options

    def build(self, batch: torch.Tensor) -> Network:
        network = self._own
        with torch.inference_mode(False), torch.no_grad():
            if FOLDED in self.options:
                network = fold_batch_norms(network)
            elif CHANNELS_LAST in self.options:
                network = deepcopy(network)
        if FOLDED in self.options:
            _require_same(network, self._own, batch[:1])
        if CHANNELS_LAST not in self.options:
            return network
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return lambda rows: network(rows.contiguous(memory_format=torch.channels_last))


def _require_same(traced: Network, own: Network, rows: torch.Tensor) -> None:
    """Code that asks for the type of its input does something else when it is traced, perhaps only far from the rows.

    Called in inference mode, as the engine is.
    """
    for scale in (1.0, -1.0, 10.0, -10.0, 1000.0, -1000.0):
        found, wanted = (network(scale * rows) for network in (traced, own))
        if not isinstance(wanted, torch.Tensor) or not wanted.is_floating_point() or not wanted.isfinite().all():
            continue
        if found.shape != wanted.shape or not (found - wanted).abs().max() <= COARSE_TOLERANCE * wanted.abs().max():
            raise InputError("traced, the model computes something else: use engine torch.")
