"""Consistency regularisation (Jeong and Shin, 2020, equation 10): noisy copies of an image are to be answered alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from smoothcert.checks import check_whole
from smoothcert.options import option
from smoothcert.training.objectives.base import Objective, Task, share_right


@dataclass(frozen=True)
class Consistency(Objective):
    """`L = mean_i [ℓ(f(x + δ_i), y) + λ KL(p̄ ‖ p_i)] + η H(p̄)`.

    `p_i` is the softmax of the scores of the i-th copy and `p̄` their mean; λ is `agreement` and η is `entropy`.
    """

    copies: int = option(2, help="Noisy copies of each image.")
    agreement: float = option(10.0, help="Weight of the copies' divergence from their mean.")
    entropy: float = option(0.5, help="Weight of the entropy of that mean.")

    name = "consistency"

    def __post_init__(self) -> None:
        check_whole("copies", self.copies, 2)

    def loss(self, task: Task, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        scores = task.scores(task.copies(x, self.copies))
        logs = torch.log_softmax(scores, 1).view(self.copies, len(y), -1)
        log_mean = torch.logsumexp(logs, 0) - math.log(self.copies)
        mean = log_mean.exp()
        divergence = (mean * (log_mean - logs)).sum(-1).mean()
        entropy = -(mean * log_mean).sum(-1).mean()
        cross = task.criterion(scores, y.repeat(self.copies))
        return cross + self.agreement * divergence + self.entropy * entropy, share_right(logs, y)
