"""Layers that are 1-Lipschitz whatever their weights: almost orthogonal ones (AOL: Prach and Lampert, 2022).

For a matrix W and `D_jj = (Σ_k |WᵀW|_jk)^−½` it is `‖WDx‖² ≤ Σ_jk |WᵀW|_jk D_jj² x_j² = ‖x‖²`, by `2ab ≤ a² + b²`. The
same of Wᵀ gives `‖DW‖ ≤ 1` for `D_jj = (Σ_k |WWᵀ|_jk)^−½`, which loses less where outputs are fewer than inputs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class OrthogonalConv2d(nn.Conv2d):
    """A 3×3 convolution that keeps the size. WᵀW is the kernel's correlation with itself; zeros around take nothing.

    It starts near a map that turns the channels of each pixel, the identity where their number stays.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1)
        turn = torch.eye(inputs) if inputs == outputs else nn.init.orthogonal_(torch.empty(outputs, inputs))
        nn.init.normal_(self.weight, std=0.002)
        with torch.no_grad():
            self.weight[:, :, 1, 1] += turn

    def forward(self, x: Tensor) -> Tensor:
        kernels = self.weight.transpose(0, 1)
        products = functional.conv2d(kernels, kernels, padding=2)
        scale = products.abs().sum((1, 2, 3), dtype=self.weight.dtype).rsqrt()
        return functional.conv2d(x, self.weight * scale[:, None, None], self.bias, padding=1)


class OrthogonalPatches(nn.Conv2d):
    """Patches that do not overlap, each mapped by the same matrix with fewer outputs than inputs."""

    def __init__(self, inputs: int, outputs: int, size: int) -> None:
        super().__init__(inputs, outputs, size, stride=size)
        nn.init.orthogonal_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        scale = _rows(self.weight.flatten(1))
        return functional.conv2d(x, self.weight * scale[:, None, None, None], self.bias, self.stride)


class OrthogonalLinear(nn.Linear):
    """A dense layer with fewer outputs than inputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        nn.init.orthogonal_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight * _rows(self.weight)[:, None], self.bias)


def _rows(matrix: Tensor) -> Tensor:
    """`(Σ_k |WWᵀ|_jk)^−½` for each row j of W."""
    return (matrix @ matrix.T).abs().sum(1, dtype=matrix.dtype).rsqrt()
