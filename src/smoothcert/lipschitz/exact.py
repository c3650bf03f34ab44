"""The network in float64: what is certified where there is no noise, and what is proved of must be what runs."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from smoothcert.errors import InputError
from smoothcert.lipschitz.graph import scores
from smoothcert.lipschitz.product import check_weights
from smoothcert.lipschitz.tripwire import doubled, points
from smoothcert.modules import evaluated

ROWS = 32
"""Inputs whose scores are computed together."""

EPS = float(torch.finfo(torch.float32).eps)
"""What every operation is off by where rounding is made coarse: half a billion times what float64 rounds."""


def exact_copy(module: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """A copy that computes in float64 from end to end; what cannot is refused."""
    if not any(t.is_floating_point() for t in (*module.parameters(), *module.buffers())):
        raise InputError(
            "the model has no weights, whose type says in which it computes: register one, if only as 1.0."
        )
    check_weights(module)
    evaluating = evaluated(module)
    twin = doubled(evaluating, points(evaluating, shape))
    if twin is None:
        raise InputError(
            "the model does not run in float64, in which it is certified without noise: let it compute in the type of "
            "its input from end to end."
        )
    return twin


@dataclass(frozen=True)
class Frozen:
    """The graph of a network with everything that it read, also of other objects, as it was when it was recorded."""

    graph: nn.Module

    @classmethod
    def of(cls, twin: nn.Module, shape: tuple[int, ...]) -> Frozen:
        """torch.export records `ROWS` rows at once."""
        x = points(twin, shape)
        batch = x[torch.arange(ROWS) % len(x)]
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of torch about itself, when a graph is copied
            made = cls(copy.deepcopy(torch.export.export(twin, (batch,), strict=False).module()))
            same = torch.allclose(made(batch), scores(twin, batch), rtol=1e-9, atol=1e-12)
        if not same:
            raise InputError("the model is not what torch.export records of it: write its forward without branches.")
        return made

    def __call__(self, batch: Tensor) -> Tensor:
        return scores(self.graph, _filled(batch))[: len(batch)]

    def shaken(self, x: Tensor) -> Tensor:
        """The scores (ROWS, c) of one input if it and the result of every operation are off by `EPS`, up or down at
        random, in each row in another way."""
        found: Tensor = _Shaken(self.graph, torch.Generator().manual_seed(0)).run(x.expand(ROWS, *x.shape))
        return found


class _Shaken(fx.Interpreter):
    """Runs a graph and changes whatever floating-point numbers come up: rounding that hides nowhere.

    That of float32 may by chance, or by design, do nothing at one input and much beside it.
    """

    def __init__(self, graph: nn.Module, chance: torch.Generator) -> None:
        super().__init__(graph)
        self.chance = chance

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        return fx.node.map_aggregate(value, self.shaken) if n.op in ("placeholder", "call_function") else value

    def shaken(self, value: Any) -> Any:
        """What has no axes is no row's: a constant, the same at every input."""
        if not isinstance(value, Tensor) or not value.is_floating_point() or not value.ndim:
            return value
        signs = torch.empty(value.shape).bernoulli_(generator=self.chance).to(value) * 2 - 1
        return value * (1 + EPS * signs)


def _filled(batch: Tensor) -> Tensor:
    """With rows of 0 up to `ROWS`."""
    return torch.cat([batch, batch.new_zeros(ROWS - len(batch), *batch.shape[1:])])
