"""Random crops and flips (He et al., 2016, section 4.2), of all images of a batch at once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def crops_and_flips(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image of (n, C, H, W), padded by an eighth of its height, cut at a random offset, mirrored or not."""
    n, _, height, width = images.shape
    device, margin = images.device, height // 8
    offsets = torch.randint(0, 2 * margin + 1, (2, n, 1), generator=generator, device=device)
    mirrored = torch.randint(0, 2, (n, 1), generator=generator, device=device) == 1
    rows = offsets[0] + torch.arange(height, device=device)
    columns = offsets[1] + torch.arange(width, device=device)
    columns = torch.where(mirrored, columns.flip(1), columns)
    padded = functional.pad(images, (margin,) * 4).permute(0, 2, 3, 1)
    return padded[torch.arange(n, device=device)[:, None, None], rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)
