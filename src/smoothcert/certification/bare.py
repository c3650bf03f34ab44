"""The model itself, without noise: its margins over what its scores can change, which is a proof without draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.certification.drawing import OnProgress
from smoothcert.errors import RunError
from smoothcert.lipschitz.constant import NEEDS_LAYERS, Steepness
from smoothcert.lipschitz.exact import ROWS, Frozen, exact_copy
from smoothcert.modules import as_weights, require_module
from smoothcert.radii.margin import margins
from smoothcert.sampling.blocks import Claim, Input
from smoothcert.sampling.engines import Engine, Engines
from smoothcert.store.file import RunFile

EPS = float(np.finfo(np.float32).eps)
ROUNDING = 8
"""How many times what float32 is off by at an input, or expected to be after so many operations, is allowed for."""


class Answers(NamedTuple):
    """The model's class of each input, the radius around it (0 where rounding may decide its class), in this time."""

    classes: NDArray[np.int64]
    radii: NDArray[np.float64]
    seconds: float

    def claim(self, position: int, row: int) -> Claim:
        radius = float(self.radii[row])
        return Claim(position, int(self.classes[row]) if radius > 0 else ABSTAIN, radius, 0, self.seconds)


@dataclass(frozen=True)
class Bare:
    """A network in float64, which is what is certified; the same as the engine runs it, and what is proved of both.

    A computed score is within `A + B ‖δ‖` of the exact one, at x and at x + δ (`lipschitz.rounding`): margins are
    lowered by `4A + 2B ‖δ‖`, and what is proved is proved of the network as float64 computes it. And by 2C, where C is
    `ROUNDING` times the larger of what float32 changes at the input itself and of `ε · max |score|` for each module
    inside, ε that of float32: a network that is run in float32 has the same class in the ball if its scores are within
    C of those in float64 there.
    """

    module: torch.nn.Module
    twin: Frozen
    engine: Engine
    steepness: Steepness

    @classmethod
    def of(cls, engines: Engines, shape: tuple[int, ...], steepness: Steepness) -> Bare:
        """The constants must be those of the copy in float64."""
        module = require_module(engines.model, NEEDS_LAYERS)
        return cls(module, Frozen.of(exact_copy(module, shape), shape), engines.open(), steepness)

    def __call__(self, xs: Sequence[NDArray[Any]]) -> Answers:
        """Each of the inputs, in whatever floating type, is a row of the batch."""
        before = perf_counter()
        exact = exact_scores(self.twin, self.engine.device, xs)
        with self.engine.ready():
            rounded = self.engine(as_weights(self.module, torch.from_numpy(np.stack(xs)))).double().cpu().numpy()
        if not np.isfinite(rounded).all():
            raise RunError(NOT_FINITE)
        off = np.abs(rounded - exact).max(axis=1)
        expected = len(list(self.module.modules())) * EPS * np.abs(exact).max(axis=1)
        allowance = 2 * self._rounding(xs) + ROUNDING * np.maximum(off, expected)
        classes, rounding = exact.argmax(axis=1), self.twin.rounding
        radii = margins(exact, classes, self.steepness.pairs, allowance, rounding.growth)
        return Answers(classes, np.minimum(radii, rounding.reach), (perf_counter() - before) / len(xs))

    def _rounding(self, xs: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        with torch.no_grad():
            return np.array([self.twin.rounding.at(x) for x in _batch(xs, self.engine.device)])


def _batch(xs: Sequence[NDArray[Any]], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.stack(xs)).to(device, torch.float64)


NOT_FINITE = "the model returned scores that are NaN or infinite: repair the model first."


def exact_scores(twin: Frozen, device: torch.device, xs: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """The scores (m, c) of the network in float64; such that are not finite are refused."""
    with torch.no_grad():
        found: NDArray[np.float64] = twin(_batch(xs, device)).cpu().numpy()
    if not np.isfinite(found).all():
        raise RunError(NOT_FINITE)
    return found


def claim_margins(
    file: RunFile, bare: Bare, inputs: Callable[[int], Input], total: int, on_progress: OnProgress
) -> None:
    """Claims the radius of each input that has none yet, and keeps its class; both are committed together."""
    known = {claim.position for claim in file.claims()}
    missing = [position for position in range(total) if position not in known]
    for start in range(0, len(missing), ROWS):
        chunk = missing[start : start + ROWS]
        answers = bare([inputs(position).array for position in chunk])
        for row, position in enumerate(chunk):
            file.add_claim(answers.claim(position, row))
        file.add_clean(dict(zip(chunk, answers.classes.tolist(), strict=True)))
        on_progress(start + len(chunk), (len(known) + start + len(chunk)) / total)
