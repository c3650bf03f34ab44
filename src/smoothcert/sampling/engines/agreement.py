"""Does an engine compute what eager PyTorch computes?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.sampling.engines.base import Engine
from smoothcert.sampling.identity import Identity

TOLERANCE = 1e-3
"""By how much scores may differ, as a share of the largest."""

COARSE_TOLERANCE = 0.03
"""The same of arithmetic with a mantissa of ten bits or fewer."""

LABELS = 0.01
"""The share of the labels that may differ."""


def agree(output: torch.Tensor, reference: torch.Tensor, tolerance: float = TOLERANCE) -> bool:
    """Equal up to rounding: scores to that share of the largest, labels on 99 % of the rows. NaN agrees with none."""
    if output.shape != reference.shape:
        return False
    if reference.ndim == 2:
        error = (output.float() - reference.float()).abs().max()
        if not bool(error <= tolerance * reference.float().abs().max()):
            return False
    return int((labels_of(output) != labels_of(reference)).sum()) <= LABELS * len(reference)


def tolerance_of(identity: Identity) -> tuple[float, float]:
    """By how much scores of one engine may differ for one row, as a share of their range and of the largest of them:
    kernels round differently at other places of a batch."""
    coarse = any(bits in identity.precision for bits in ("16", "int8"))
    return (0.05, COARSE_TOLERANCE) if coarse else (TOLERANCE, 1e-5)


def count_differences(
    engine: Engine,
    reference: Engine,
    xs: Sequence[NDArray[np.float32]],
    *,
    sigma: float,
    batch: int,
    draws: int = 10_000,
    seed: int = 0,
) -> int:
    """How many of `draws` noisy copies of xs, all with as many, the two engines put into different classes.

    The noise is none that a run draws.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.from_numpy(np.stack(xs))
    differences = 0
    for start in range(0, draws, batch):
        rows = inputs[torch.arange(start, start + batch) % len(inputs)]
        rows = (rows + sigma * torch.randn(rows.shape, generator=generator)).to(engine.device)
        labels = []
        for e in (engine, reference):
            with e.ready():
                labels.append(labels_of(e(rows))[: draws - start])
        differences += int((labels[0] != labels[1]).sum())
    return differences


def labels_of(output: torch.Tensor) -> torch.Tensor:
    """The class of each row, of scores the largest."""
    return output.argmax(dim=1) if output.ndim == 2 else output
