"""Rows of a batch that see each other: looked for before the first draw. It is a check, not a proof.

A certificate is about one input. A model whose answer to a row depends on the other rows of the batch, by their mean
for instance, is no function of one input, and its votes are not independent.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.sampling.blocks import Input, Phase, noise_key
from smoothcert.sampling.engines import Engine
from smoothcert.sampling.engines.agreement import LABELS, tolerance_of
from smoothcert.sampling.executor import Executor, Job
from smoothcert.sampling.noise import Piece

RANDOM = "gives other answers when it is asked for the same rows again"
MIXED = "gives the same rows other answers in another order and among other rows"


def fault(engine: Engine, source: Input, job: Job) -> str | None:
    """What is wrong with the answers to one batch of noisy copies of the input; None where nothing is seen.

    About half of its rows are asked for again, in another order and among copies of an input far below it; at both ends
    of the batch, unless it has two rows only, is one far above it. The scores of each class must agree, and 99 % of the
    labels. What is not finite at first is left to the draws, which refuse it.
    """
    rows = torch.arange(max((job.batch - 1) // 2, min(job.batch // 2, 1)), device=engine.device)
    places = max(job.batch, 3) - 2 - 2 * rows
    x = source.array
    first, second, above = (_copies(y, source.id, engine, job) for y in (x, -1 - x, 2 + x))
    second[0], second[-1] = above[0], above[-1]
    second[places] = first[rows]
    ask, tolerance = Executor(engine, lambda position: source, job).forward, tolerance_of(engine.identity)
    with engine.ready():
        before, after = ask(first), ask(second)
        answered = before.shape == after.shape and before.shape[:1] == (job.batch,)
        if not answered or _alike(before[rows], after[places], *tolerance):
            return None
        again = ask(_copies(source.array, source.id, engine, job))
    return MIXED if _alike(before, again, *tolerance) else RANDOM


def _copies(x: NDArray[np.float32], input_id: str, engine: Engine, job: Job) -> torch.Tensor:
    """A batch of noisy copies, with noise that no draw has."""
    rows = torch.empty((job.batch, *x.shape), dtype=torch.float32, device=engine.device)
    centre = job.noise.centre(x).moved(engine.device)
    job.noise.draw([Piece(noise_key(job.seed, input_id, Phase.CHECK, 0), 0, job.batch, centre)], rows)
    return rows


def _alike(before: torch.Tensor, after: torch.Tensor, share: float, rounding: float) -> bool:
    """Are these answers to the same rows the same?

    The scores of a class may differ by a share of their range over the rows, and by what rounding does to the largest:
    a class whose scores are large and all alike, such as one that is masked, hides no other.
    """
    if before.ndim == 2:
        if before.numel() == 0 or not torch.isfinite(before).all():
            return True
        old, new = before.double(), after.double()
        allowed = share * (old.amax(0) - old.amin(0)) + rounding * old.abs().amax(0)
        if not bool(((new - old).abs() <= allowed).all()):
            return False
        before, after = before.argmax(1), after.argmax(1)
    return int((before != after).sum()) <= LABELS * len(before)
