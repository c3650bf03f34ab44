"""From the points that an ascent reached to the smallest perturbation found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Judge = Callable[[NDArray[np.float32]], NDArray[np.int64]]
"""The class of each of a batch of points."""

HALVINGS = 10


@dataclass(frozen=True)
class Attack:
    """The smallest perturbation found for each input.

    `norms` are ‖δ‖₂ in float64, 0 where the input itself is not given its label and infinite where nothing was found;
    `deltas` are x + δ − x for the float32 point that was judged, 0 where nothing was found; `eps` are the radii that
    were searched, ascending.
    """

    eps: NDArray[np.float64]
    norms: NDArray[np.float64]
    deltas: NDArray[np.float64]

    @property
    def success(self) -> NDArray[np.bool_]:
        """(inputs, ε): was a perturbation of that size or a smaller one found?"""
        smaller: NDArray[np.bool_] = self.norms[:, None] <= self.eps
        return smaller

    @property
    def robust_accuracy(self) -> NDArray[np.float64]:
        """The share of inputs that are given their label and keep it, for each ε."""
        shares: NDArray[np.float64] = (~self.success).mean(axis=0)
        return shares


def smallest(
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    eps: NDArray[np.float64],
    points: NDArray[np.float32],
    judge: Judge,
) -> Attack:
    """Judges x and its points, one for each input and ε, and bisects the segment from x to the first one that won.

    A point counts for its ε only where ‖point − x‖₂ ≤ ε in float64.
    """
    count = 1 + len(eps)
    candidates = np.concatenate([x[:, None], points.reshape(len(x), len(eps), *x.shape[1:])], axis=1)
    flat = candidates.reshape(-1, *x.shape[1:])
    inside = distances(flat, x.repeat(count, axis=0)).reshape(-1, count) <= np.concatenate([[0.0], eps])
    won = inside & (judge(flat).reshape(-1, count) != labels[:, None])
    found = won.any(axis=1)
    best = candidates[np.arange(len(x)), won.argmax(axis=1)]
    rows = np.flatnonzero(found & ~won[:, 0])
    start = x[rows].astype(np.float64)
    whole = best[rows] - start
    low, high = np.zeros(len(rows)), np.ones(len(rows))
    for _ in range(HALVINGS if len(rows) else 0):
        middle = (low + high) / 2
        point = (start + middle.reshape(-1, *(1 for _ in x.shape[1:])) * whole).astype(np.float32)
        fooled = judge(point) != labels[rows]
        best[rows[fooled]] = point[fooled]
        low, high = np.where(fooled, low, middle), np.where(fooled, middle, high)
    return Attack(eps, np.where(found, distances(best, x), np.inf), best.astype(np.float64) - x)


def distances(points: NDArray[np.float32], x: NDArray[np.float32]) -> NDArray[np.float64]:
    """‖point − x‖₂ of each row, in float64."""
    norms: NDArray[np.float64] = np.linalg.norm((points.astype(np.float64) - x).reshape(len(x), -1), axis=1)
    return norms
