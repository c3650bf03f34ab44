"""How steep the scores are, as the kinds of votes need it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError

Floats = NDArray[np.float64]
Kept = tuple[tuple[float, ...], ...]
MOST_CLASSES = 256
"""Up to so many classes a plan keeps a constant for each pair, of more the largest for each class."""


@dataclass(frozen=True)
class Slopes:
    """`scores[i]` is the ℓ2 constant of the vector of scores near input i, and `pairs[k, j]` that of `f_k − f_j`
    anywhere, where it is known; otherwise it is at most √2 times the former. One row of `pairs` has the largest for
    each class: that of `f_k − f_j` is at most the smaller of the two.

    Where they are `of_shares`, `scores[i]` is the constant of each class's share of a vote itself.
    """

    scores: Floats
    pairs: Floats | None = None
    of_shares: bool = False

    def rows(self, some: slice) -> Slopes:
        """Those of some inputs."""
        return replace(self, scores=self.scores[some])

    def against(self, classes: NDArray[np.int64], num_classes: int) -> Floats:
        """The constants (m, c) of `f_k − f_j`, k the class of each input, for every j."""
        if self.pairs is None:
            return np.repeat(math.sqrt(2) * self.scores[:, None], num_classes, axis=1)
        one_row = len(self.pairs) == 1
        return np.asarray(np.minimum(self.pairs[0, classes, None], self.pairs) if one_row else self.pairs[classes])

    def widest(self, num_classes: int) -> Floats:
        """The largest constant (m, c) of `f_k − f_j` over all j, for every k."""
        if self.pairs is None:
            return np.repeat(math.sqrt(2) * self.scores[:, None], num_classes, axis=1)
        largest = self.pairs.max(axis=1)[None] if len(self.pairs) > 1 else self.pairs
        return np.repeat(largest, len(self.scores), axis=0)


def kept(pairs: Floats) -> Kept:
    """The constants of pairs as a plan keeps them."""
    rows = pairs if len(pairs) <= MOST_CLASSES else pairs.max(axis=1)[None]
    return tuple(map(tuple, rows.tolist()))


def between(pairs: Kept, num_classes: int) -> Floats | None:
    """The constants of pairs that a plan keeps: (c, c), or the largest for each class as (1, c)."""
    if not pairs:
        return None
    rows = np.array(pairs) if len({len(row) for row in pairs}) == 1 else np.empty(0)
    if rows.shape not in ((1, num_classes), (num_classes, num_classes)) or (rows < 0).any():
        raise InputError("constants of pairs are kept for all classes, and are not negative.")
    return rows
