"""No noise: what the model says of the input itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.sampling.noise.base import Centre, Piece, Values


@dataclass(frozen=True)
class Silence:
    """Every copy of an input is the input."""

    name = "silence"
    sigma = 0.0
    levels = None

    def check(self, x: NDArray[np.float32], input_id: str) -> None:
        """Every input is welcome."""

    check_size = check

    def error(self, values: int) -> float:
        return 0.0

    def centre(self, x: NDArray[np.float32]) -> Centre:
        return Centre(x)

    def draw(self, pieces: Sequence[Piece], out: Values) -> None:
        rows: Any = out
        start = 0
        for piece in pieces:
            rows[start : start + piece.rows] = piece.centre.values
            start += piece.rows
