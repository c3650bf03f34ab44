"""The product of the layers' norms as the paper's appendix defines it, and what its published script takes for a norm.

    python -m smoothcert.experiments.paper_product

prints that script's ratio for kernels of three sizes, beside their norms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.lipschitz import graph, rules, spectral, tripwire
from smoothcert.lipschitz.walk import Walk

POOLS = (rules.max_pool, rules.adaptive_max_pool, rules.average_pool, rules.adaptive_average_pool)


class _PaperWalk(Walk):
    """Nothing is folded into the layer before it, and a pool has the constant 1."""

    def value(self, node: torch.fx.Node, folds: type | None) -> Any:
        return super().value(node, None)

    def ask(self, where: str, rule: Any, *arguments: Any, **options: Any) -> Any:
        pool = getattr(rule, "func", rule) in POOLS
        return 1.0 if pool else super().ask(where, rule, *arguments, **options)


def paper_product(module: nn.Module, input_shape: Sequence[int]) -> float:
    """`PUB(F) = Π L(l_i)` of a module in evaluation mode: an estimate, and for pools that overlap no bound.

    Norms of linear layers are by power iteration, those of a batch normalisation `max |γ| / √(v + ε)`, apart from the
    layer before it; a pool has 1, and a residual block the sum of its two ways.
    """
    x = tripwire.points(module, tuple(input_shape))[: graph.BATCH]
    return _PaperWalk(module, graph.trace(module, x, rules.operations()), spectral.power, whole=False).bound()


def published_ratio(weight: Tensor, side: int, steps: int = 10) -> float:
    """`‖Wx‖ / ‖Wᵀy‖` at the last step of power iteration with `x = Wᵀy / ‖Wᵀy‖`, `y = Wx / ‖Wx‖`.

    `‖Wx‖` tends to the norm of the convolution and so does `‖Wᵀy‖`: their ratio tends to 1, from below, for
    `‖Wx‖ = ⟨Wx, y⟩ = ⟨x, Wᵀy⟩ ≤ ‖Wᵀy‖`.
    """
    padding = weight.shape[-1] // 2
    x = torch.randn(1, weight.shape[1], side, side, generator=torch.Generator().manual_seed(0), dtype=weight.dtype)
    ratio = torch.tensor(torch.nan)
    for _ in range(steps):
        y = functional.conv2d(x / x.norm(), weight, padding=padding)
        x = functional.conv_transpose2d(y / y.norm(), weight, padding=padding)
        ratio = y.norm() / x.norm()
    return float(ratio)


def main() -> None:
    """A kernel of 16 channels with normal entries of deviation 0.1, scaled."""
    kernel = torch.randn(16, 16, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 10
    print("| kernel times | its norm (power iteration) | the ratio |\n|---|---|---|")
    for scale in (1, 5, 50):
        weight = scale * kernel
        layer = spectral.Convolution(weight[None], (32, 32), (32, 32), (1, 1), (1, 1), (1, 1))
        print(f"| {scale} | {spectral.power(layer):.2f} | {published_ratio(weight, 32):.4f} |")


if __name__ == "__main__":
    main()
