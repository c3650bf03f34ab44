"""The network in float64: what is certified where there is no noise, and what is proved of must be what runs."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from smoothcert.errors import InputError
from smoothcert.lipschitz import rules
from smoothcert.lipschitz.graph import Program, compare, scores, trace
from smoothcert.lipschitz.product import check_weights
from smoothcert.lipschitz.rounding import Rounding
from smoothcert.lipschitz.tripwire import doubled, points
from smoothcert.modules import evaluated

ROWS = 32
"""Inputs whose scores are computed together."""


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

    program: Program
    rounding: Rounding

    @classmethod
    def of(cls, twin: nn.Module, shape: tuple[int, ...]) -> Frozen:
        """`ROWS` rows run at once; what is rounded is bounded in the graph of one, which must be the same."""
        x = points(twin, shape)
        batch = x[torch.arange(ROWS) % len(x)]
        one, many = (trace(twin, batch[:size].clone(), rules.operations()) for size in (1, ROWS))
        compare(one, many)
        one, many = map(_copied, (one, many))
        made = cls(many, Rounding.of(twin, one))
        with torch.no_grad():
            same = torch.allclose(made(batch), scores(twin, batch), rtol=1e-9, atol=1e-12)
        if not same:
            raise InputError("the model is not what torch.export records of it: write its forward without branches.")
        return made

    def __call__(self, batch: Tensor) -> Tensor:
        return self.program(_filled(batch))[: len(batch)]


def _copied(program: Program) -> Program:
    """With constants that nobody else has."""
    values = copy.deepcopy(list(program.constants.values()))
    return replace(program, constants=dict(zip(program.constants, values, strict=True)))


def _filled(batch: Tensor) -> Tensor:
    """With rows of 0 up to `ROWS`."""
    return torch.cat([batch, batch.new_zeros(ROWS - len(batch), *batch.shape[1:])])
