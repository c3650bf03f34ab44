"""What every objective of a training answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn


@dataclass(frozen=True)
class Task:
    """What is trained: `run` runs a network in the precision of the training, `noise` draws anew for a batch.

    `criterion` is the loss of noisy scores and labels: the cross entropy, or liresnet's margin loss.
    """

    model: nn.Module
    run: Callable[[nn.Module, Tensor], Tensor]
    criterion: Callable[[Tensor, Tensor], Tensor]
    noise: Callable[[Tensor], Tensor]
    sigma: float

    def scores(self, x: Tensor) -> Tensor:
        return self.run(self.model, x)

    def copies(self, x: Tensor, count: int) -> Tensor:
        """`count` noisy copies of each image of the batch, one batch after the other."""
        repeated = x.repeat(count, *(1 for _ in x.shape[1:]))
        return repeated + self.noise(repeated)


class Objective(ABC):
    """How a batch becomes a loss."""

    name: ClassVar[str]
    clips: ClassVar[bool] = True
    """Are gradients clipped to norm 1?"""

    @abstractmethod
    def loss(self, task: Task, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of images without noise and their labels, and the share of noisy copies that are right."""


def share_right(scores: Tensor, y: Tensor) -> Tensor:
    """Of scores (…, N, c) and labels (N,)."""
    return (scores.detach().argmax(-1) == y).float().mean()
