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
from smoothcert.sampling.engines.agreement import LABELS, scores_agree, tolerance_of
from smoothcert.sampling.executor import Executor, Job
from smoothcert.sampling.noise import Piece

RANDOM = "gives other answers when it is asked for the same rows again"
MIXED = "gives the same rows other answers in another order and among other rows"


def fault(engine: Engine, source: Input, job: Job) -> str | None:
    """What is wrong with the answers to one batch of noisy copies of the input; None where nothing is seen.

    Half of its rows are asked for again, in another order and with a copy of an input far away between any two. Scores
    must agree as those of two engines must; of labels, where there are only labels, 99 %. What is neither is left to
    the draws, which refuse it.
    """
    rows = torch.arange(job.batch // 2, device=engine.device)
    places = job.batch - 1 - 2 * rows
    first, second = (_copies(x, source.id, engine, job) for x in (source.array, -1 - source.array))
    second[places] = first[rows]
    ask, tolerance = Executor(engine, lambda position: source, job).forward, tolerance_of(engine.identity)
    with engine.ready():
        before, after = ask(first), ask(second)
        answered = before.shape == after.shape and before.shape[:1] == (job.batch,)
        if not answered or _alike(before[rows], after[places], tolerance):
            return None
        again = ask(_copies(source.array, source.id, engine, job))
    return MIXED if _alike(before, again, tolerance) else RANDOM


def _copies(x: NDArray[np.float32], input_id: str, engine: Engine, job: Job) -> torch.Tensor:
    """A batch of noisy copies, with noise that no draw has."""
    rows = torch.empty((job.batch, *x.shape), dtype=torch.float32, device=engine.device)
    centre = job.noise.centre(x).moved(engine.device)
    job.noise.draw([Piece(noise_key(job.seed, input_id, Phase.CHECK, 0), 0, job.batch, centre)], rows)
    return rows


def _alike(before: torch.Tensor, after: torch.Tensor, tolerance: float) -> bool:
    """Are these answers to the same rows the same?"""
    if before.ndim == 1:
        return int((before != after).sum()) <= LABELS * len(before)
    finite = bool(torch.isfinite(before).all() and torch.isfinite(after).all())
    return not finite or before.numel() == 0 or scores_agree(after, before, tolerance)
