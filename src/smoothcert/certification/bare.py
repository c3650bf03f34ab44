"""The model itself, without noise: its margins over what its scores can change, which is a proof without draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.certification.drawing import OnProgress
from smoothcert.errors import InputError, RunError
from smoothcert.lipschitz.constant import NEEDS_LAYERS
from smoothcert.lipschitz.tripwire import doubled, points
from smoothcert.modules import evaluated, require_module
from smoothcert.radii.margin import margins
from smoothcert.sampling.blocks import Claim, Input
from smoothcert.sampling.engines import Engine, Engines
from smoothcert.store.file import RunFile

ROWS = 32
"""Inputs whose scores are computed together."""

ROUNDING = 8
"""How many times the rounding that is measured at an input, or expected of so many operations, is allowed for."""

EPS = float(torch.finfo(torch.float32).eps)


class Answers(NamedTuple):
    """The model's class of each input, the radius around it (0 where float32 may not tell its class), in this time."""

    classes: NDArray[np.int64]
    radii: NDArray[np.float64]
    seconds: float

    def claim(self, position: int, row: int) -> Claim:
        radius = float(self.radii[row])
        return Claim(position, int(self.classes[row]) if radius > 0 else ABSTAIN, radius, 0, self.seconds)


@dataclass(frozen=True)
class Bare:
    """A network as the engine runs it, the same in float64, and the constants of `f_k − f_j`.

    The constants are of the network in real numbers, whose scores float64 gives; the network in use rounds to float32.
    Its scores are assumed to be within A of those in real numbers everywhere in the ball, where A is `ROUNDING` times
    the larger of the difference that is measured at the input itself and of `ε · max |score|` for each module inside.
    At x + δ its margin is then at least that of float64 at x less 2A less `K_kj ‖δ‖`.
    """

    engine: Engine
    twin: torch.nn.Module
    pairs: NDArray[np.float64]

    @classmethod
    def of(cls, engines: Engines, shape: tuple[int, ...], pairs: NDArray[np.float64]) -> Bare:
        """A module that cannot be run in float64 is refused."""
        module = evaluated(require_module(engines.model, NEEDS_LAYERS))
        twin = doubled(module, points(module, shape))
        if twin is None:
            raise InputError(
                "the model cannot be run in float64, by which its rounding is measured: let it compute in the type of "
                "its input."
            )
        return cls(engines.open(), twin, pairs)

    def __call__(self, xs: Sequence[NDArray[np.float32]]) -> Answers:
        """Each of the inputs is a row of the batch; scores that are not finite are refused."""
        before = perf_counter()
        batch = torch.from_numpy(np.stack(xs)).to(self.engine.device)
        with self.engine.ready(), torch.no_grad():
            rounded, exact = self.engine(batch).double().cpu().numpy(), self.twin(batch.double()).cpu().numpy()
        if not (np.isfinite(rounded).all() and np.isfinite(exact).all()):
            raise RunError("the model returned scores that are NaN or infinite: repair the model first.")
        expected = len(list(self.twin.modules())) * EPS * np.abs(exact).max(axis=1)
        allowance = ROUNDING * np.maximum(np.abs(rounded - exact).max(axis=1), expected)
        classes = rounded.argmax(axis=1)
        radii = margins(exact, classes, self.pairs, allowance)
        return Answers(classes, radii, (perf_counter() - before) / len(xs))


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
