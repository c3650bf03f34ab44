"""A small network for the 8×8 digits that is 1-Lipschitz by design."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.lipschitz.groupsort import GroupSort
from smoothcert.lipschitz.spectral import Convolution, fourier


class AlmostOrthogonal(nn.Linear):
    """`x ↦ W D x + bias` with `D_jj = (Σ_k |WᵀW|_jk)^−½`, whatever W (AOL: Prach and Lampert, 2022).

    `‖WDx‖² = Σ_jk (WᵀW)_jk D_jj D_kk x_j x_k ≤ Σ_jk |WᵀW|_jk D_jj² x_j² = ‖x‖²`, by `2ab ≤ a² + b²`: the constant is 1.
    """

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight * self._scale(), self.bias)

    def _scale(self) -> Tensor:
        return (self.weight.T @ self.weight).abs().sum(dim=1).rsqrt()

    def lipschitz_bound(self) -> float:
        """At most 1 by design, but for rounding: the proved norm of WD as it is in floating point."""
        with torch.no_grad():
            return fourier(Convolution((self.weight * self._scale()).double()[None]))


def digits_lipschitz(*, num_classes: int = 10, width: int = 64) -> nn.Sequential:
    """Four almost orthogonal layers with GroupSort between them, for (1, 8, 8) inputs; each layer is 1-Lipschitz."""
    return nn.Sequential(
        nn.Flatten(),
        AlmostOrthogonal(64, width),
        GroupSort(),
        AlmostOrthogonal(width, width),
        GroupSort(),
        AlmostOrthogonal(width, width),
        GroupSort(),
        AlmostOrthogonal(width, num_classes),
    )
