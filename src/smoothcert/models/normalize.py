"""The layer in front of a network that standardises its input."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Normalize(nn.Module):
    """`(x − mean) / std` for each channel of (…, C, H, W).

    It is the model's first layer, so that noise and radii live in the coordinates of the image. Mean and std
    are constants of the architecture, not weights: as in Cohen et al. they are not part of a checkpoint.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std
