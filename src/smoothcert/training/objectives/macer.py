"""MACER (Zhai et al., 2020, section 4): the certified radius itself, made as large as it pays."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from smoothcert.checks import check_whole
from smoothcert.options import option
from smoothcert.training.objectives.base import Objective, Task, share_right

GAMMA, BETA = 8.0, 16.0
"""The gap from which on a radius is large enough, and the inverse temperature of the radius: the paper's."""


@dataclass(frozen=True)
class Macer(Objective):
    """`L = −log z_y + λ σ/2 · max(0, γ − ξ)`, the second term for images that are classified right.

    `z` is the mean softmax of the scores of `draws` noisy copies, `ẑ` the same of scores times β, and
    `ξ = Φ⁻¹(ẑ_y) − Φ⁻¹(max_{j≠y} ẑ_j)`, so that σ ξ / 2 is the radius of the soft classifier; λ is `hinge`. As in the
    authors' code, where ξ exceeds γ or is infinite there is no second term.
    """

    draws: int = option(8, help="Draws of noise behind macer's probabilities.")
    hinge: float = option(12.0, help="Weight of what is missing in macer's radius.")

    name = "macer"

    def __post_init__(self) -> None:
        check_whole("draws", self.draws, 2)

    def loss(self, task: Task, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        scores = task.scores(task.copies(x, self.draws)).view(self.draws, len(y), -1)
        cross = -torch.log(scores.softmax(-1).mean(0).gather(1, y[:, None]) + 1e-10).mean()
        (first, second), (top, _) = (part.unbind(1) for part in (BETA * scores).softmax(-1).mean(0).topk(2))
        # Within (0, 1), where the quantile and its slope are finite.
        gap = torch.special.ndtri(first.clamp(max=1 - 1e-6)) - torch.special.ndtri(second.clamp(min=1e-6))
        missing = torch.where((top == y) & (gap < GAMMA), GAMMA - gap, 0.0)
        return cross + self.hinge * task.sigma / 2 * missing.mean(), share_right(scores, y)
