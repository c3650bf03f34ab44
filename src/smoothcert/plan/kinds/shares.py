"""Shares: a vote divided among the classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.checks import check_positive
from smoothcert.options import keep, option
from smoothcert.plan.kinds.base import Proved
from smoothcert.plan.kinds.soft import Soft
from smoothcert.plan.slopes import Slopes
from smoothcert.plan.tally import Others, Shares, Tally
from smoothcert.radii.soft import SOFT_METHODS
from smoothcert.sampling.blocks import MOST_SOFT_DRAWS, Beside
from smoothcert.sampling.blocks import Soft as Sums

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class _Shares(Soft):
    """A vote divided among the classes: τ(scores / T), a point of the simplex."""

    temperature: float = option(
        1.0, help="What the scores are divided by before softmax or sparsemax.", panel="Soft votes"
    )
    methods: ClassVar[Mapping[str, Any]] = SOFT_METHODS
    default_method: ClassVar[str] = "betting"
    most_draws: ClassVar[int | None] = MOST_SOFT_DRAWS

    def __post_init__(self) -> None:
        keep(self, temperature=check_positive("temperature", self.temperature, "scores are divided by it"))

    def ballots(self, scores: torch.Tensor) -> torch.Tensor:
        """Shares in whole multiples of 1/UNIT."""
        from smoothcert.sampling.simplex import shares

        return shares(self.name, self.temperature, scores)

    @property
    def shares(self) -> Callable[[torch.Tensor], torch.Tensor]:
        from smoothcert.sampling.simplex import MAPS

        return lambda scores: MAPS[self.name](scores / self.temperature)

    def count(self, ballots: NDArray[Any], candidate: int) -> Beside | None:
        return Sums.of(ballots, candidate)

    def others(self, inputs: int, num_classes: int) -> Others | None:
        return Shares.zeros(inputs, num_classes)

    def prove(self, tally: Tally, method: str, level: float, sigma: float, slopes: Slopes | None) -> Proved:
        """The radius of one bound for each rival, larger where the shares are known to be Lipschitz."""
        selection, estimation = tally.shares.selection, tally.shares.estimation
        m, c = tally.estimations.shape
        known = np.full((m, c), np.inf) if slopes is None else self.share_slopes(slopes, c)
        radii = self.methods[method](selection, estimation, level, sigma, known)
        largest = None if slopes is None else known.max(axis=1)
        return Proved(selection.candidates, radii, selection.n, estimation.n, lipschitz=largest)

    def total(self, tally: Tally) -> NDArray[Any]:
        return tally.shares.estimation.totals

    def __str__(self) -> str:
        return f"{self.name} of the scores / {self.temperature:g}"


@dataclass(frozen=True)
class Softmax(_Shares):
    """`F_k = e^{z_k/T} / Σ_j e^{z_j/T}` of the scores z."""

    name: ClassVar[str] = "softmax"
    jumps: ClassVar[bool] = False

    def slope(self, num_classes: int) -> float:
        """√2/4 / T: `∇p_k = p_k (e_k − p)`, and `‖e_k − p‖² = (1 − p_k)² + Σ_{j≠k} p_j² ≤ 2 (1 − p_k)²`, so that
        `‖∇p_k‖ ≤ √2 p_k (1 − p_k) ≤ √2/4`."""
        return math.sqrt(2) / 4 / self.temperature

    def pair_slope(self, num_classes: int) -> float:
        """1/4 / T: `∇p_k = p_k Σ_j p_j (∇z_k − ∇z_j)`, so that `‖∇p_k‖ ≤ p_k (1 − p_k) max_j K_kj`."""
        return 1 / 4 / self.temperature


@dataclass(frozen=True)
class Sparsemax(_Shares):
    """The point of the simplex nearest to the scores / T (Martins and Astudillo, 2016)."""

    name: ClassVar[str] = "sparsemax"
    jumps: ClassVar[bool] = False

    def slope(self, num_classes: int) -> float:
        """√(1 − 1/c) / T: it is continuous and piecewise linear; where s scores are in its support its Jacobian there
        is `I − 11ᵀ/s`, whose rows have norm `√((1 − 1/s)² + (s − 1)/s²) = √(1 − 1/s)`, the largest for s = c."""
        return math.sqrt(1 - 1 / num_classes) / self.temperature

    def pair_slope(self, num_classes: int) -> float:
        """(1 − 1/c) / T: `∇p_k` is the mean of `∇z_k − ∇z_j` over the s scores j of the support, one of which is 0."""
        return (1 - 1 / num_classes) / self.temperature


@dataclass(frozen=True)
class Hardmax(_Shares):
    """The whole vote for the largest score, but counted and bounded as shares are."""

    name: ClassVar[str] = "hardmax"
