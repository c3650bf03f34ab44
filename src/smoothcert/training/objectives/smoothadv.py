"""SmoothAdv (Salman et al., 2019, section 2.2): adversarial training of the smoothed classifier."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from smoothcert.checks import check_positive, check_whole
from smoothcert.options import option
from smoothcert.training.objectives.base import Objective, Task, share_right


@dataclass(frozen=True)
class SmoothAdv(Objective):
    """`L = mean_i ℓ(f(x̂ + δ_i), y)` at the x̂ within `radius` of x where `−log mean_i softmax(f(x̂ + δ_i))_y` is largest.

    x̂ is found by projected gradient ascent with the network in evaluation mode, from x, in `steps` of length
    2·radius/steps; the draws δ_i are the same in all of them and in the loss. Nothing keeps x̂ within [0, 1]: neither
    does a certificate.
    """

    copies: int = option(2, help="Noisy copies of each image.")
    radius: float = option(0.25, help="Length of smoothadv's perturbations.")
    steps: int = option(2, help="Steps of smoothadv's ascent.")

    name = "smoothadv"

    def __post_init__(self) -> None:
        check_whole("copies", self.copies, 1)
        check_whole("steps", self.steps, 1)
        check_positive("radius", self.radius, "it is the length of the perturbations")

    def loss(self, task: Task, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        repeats = (self.copies, *(1 for _ in x.shape[1:]))
        noise = task.noise(x.repeat(repeats))
        with _evaluating(task.model):
            delta = torch.zeros_like(x)
            for _ in range(self.steps):
                delta = self._step(task, x, delta, noise, y)
        scores = task.scores((x + delta).repeat(repeats) + noise)
        return task.criterion(scores, y.repeat(self.copies)), share_right(scores.view(self.copies, len(y), -1), y)

    def _step(self, task: Task, x: Tensor, delta: Tensor, noise: Tensor, y: Tensor) -> Tensor:
        delta = delta.requires_grad_()
        scores = task.scores((x + delta).repeat(self.copies, *(1 for _ in x.shape[1:])) + noise)
        logs = torch.log_softmax(scores, 1).view(self.copies, len(y), -1)
        likely = torch.logsumexp(logs, 0).gather(1, y[:, None]).sum()
        (gradient,) = torch.autograd.grad(-likely, delta)
        moved = delta.detach() + 2 * self.radius / self.steps * gradient / _lengths(gradient)
        return moved * (self.radius / _lengths(moved)).clamp(max=1)


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    """The network in evaluation mode; each part of it is put back as it was."""
    training = [part for part in network.modules() if part.training]
    network.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _lengths(x: Tensor) -> Tensor:
    """The ℓ2 norm of each image, above 0."""
    norms: Tensor = x.flatten(1).norm(dim=1)
    return norms.clamp_min(1e-12).view(-1, *(1 for _ in x.shape[1:]))
