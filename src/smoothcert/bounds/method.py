"""What every method returns: a lower confidence bound on the margin Φ⁻¹(p₁) − Φ⁻¹(p₂)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class MarginBound:
    """`t[i]`: with probability at least 1 − α, input i has margin at least t[i]; its radius is σ t[i] / 2.

    `num_buckets[i]` is the paper's c* where the method groups classes, else None.
    """

    t: NDArray[np.float64]
    num_buckets: Counts | None = None


Method = Callable[[Counts, Counts, float], MarginBound]
"""(selections (m, c), estimations (m, c), α) -> MarginBound; the candidate is the selection's top class."""


def candidates(selections: Counts) -> Counts:
    """The class with most selection votes; ties go to the lowest id."""
    top: Counts = selections.argmax(axis=1)
    return top


def split(selections: Counts, estimations: Counts) -> tuple[Counts, Counts, Counts]:
    """(N₁, the largest other count, n) of each row: all that the methods without buckets look at."""
    rows, top = np.arange(len(selections)), candidates(selections)
    rivals = estimations.copy()
    rivals[rows, top] = -1
    return estimations[rows, top], rivals.max(axis=1), estimations.sum(axis=1)
