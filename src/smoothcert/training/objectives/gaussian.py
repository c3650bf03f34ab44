"""Training under noise (Cohen et al., 2019, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from smoothcert.training.objectives.base import Objective, Task, share_right


@dataclass(frozen=True)
class Gaussian(Objective):
    """`L = ℓ(f(x + δ), y)` for one draw δ of N(0, σ² I) and the cross entropy ℓ."""

    name = "gaussian"
    clips = False

    def loss(self, task: Task, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        scores = task.scores(x + task.noise(x))
        return task.criterion(scores, y), share_right(scores, y)
