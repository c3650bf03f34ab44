"""What a denoiser is trained for (Salman et al., 2020, section 3): MSE and stability, without labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.training.objectives.base import Objective, Task, share_right


@dataclass(frozen=True)
class Denoising(Objective):
    """`L = ‖d(x + δ) − x‖² / ‖δ‖² + ℓ(f(d(x + δ)), softmax f(x))` for the denoiser d, and the classifier f as it is.

    The first term is the share of the noise that is left; the second, a cross entropy, asks f to say of the denoised
    image what it says of the image. That is what is called right.
    """

    denoiser: nn.Module
    classifier: nn.Module

    name = "denoising"

    def loss(self, task: Task, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        noise = task.noise(x)
        with torch.no_grad():
            answers = task.run(self.classifier, x)
        picture = task.run(self.denoiser, x + noise)
        scores = task.run(self.classifier, picture)
        left = (picture - x).square().mean() / noise.square().mean()
        unstable = functional.cross_entropy(scores, answers.softmax(1))
        return left + unstable, share_right(scores, answers.argmax(1))
