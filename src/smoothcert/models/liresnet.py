"""LiResNet (Hu et al., 2023, "Unlocking deterministic robustness certification on ImageNet")."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.errors import InputError
from smoothcert.lipschitz.product import product
from smoothcert.lipschitz.rules import register
from smoothcert.lipschitz.signals import Signal
from smoothcert.models.almost_orthogonal import OrthogonalConv2d, OrthogonalLinear, OrthogonalPatches
from smoothcert.models.normalize import Normalize


class MinMax(nn.Module):
    """The smaller and the larger of channels i and i + C/2 of (n, C, …): GroupSort of pairs, without a sort.

    It permutes entries, so that it is 1-Lipschitz and its gradient keeps its norm. Both come from one
    `d = max(b − a, 0)`, whose gradient takes half the time of those of minimum and maximum.
    """

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=1)
        d = functional.relu(b - a)
        return torch.cat((b - d, a + d), dim=1)


@register(MinMax)
def minmax(shape: tuple[int, ...], module: MinMax, x: Signal) -> float:
    """1 where channels can be paired: of an odd number, such as three, one would be used twice."""
    if x.shape[1] % 2:
        raise InputError(f"it pairs channels, and {x.shape[1]} is odd.")
    return 1.0


class ResidualConv2d(nn.Conv2d):
    """A linear residual block `x + Wx` as the one convolution `I + W`: its norm is that of one operator.

    The bound of a residual branch would be `1 + ‖W‖`; `‖I + W‖` is smaller, and 1 where W turns vectors only.
    """

    identity: Tensor

    def __init__(self, width: int) -> None:
        super().__init__(width, width, 3, padding=1)
        self.register_buffer("identity", nn.init.dirac_(torch.empty_like(self.weight)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(x, self.weight + self.identity, self.bias, padding=1)


class NormalizedLinear(nn.Linear):
    """The last layer with rows of length 1, then centred: no class may buy its margin with a longer row.

    What all rows share moves all scores alike: it changes no margin, only the Lipschitz constant.
    """

    def forward(self, x: Tensor) -> Tensor:
        rows = functional.normalize(self.weight)
        return functional.linear(x, rows - rows.mean(0), self.bias)


class LiResNet(nn.Module):
    """Stem, linear residual blocks, neck and dense layer, each followed by MinMax, and a normalised last layer.

    No layer is rescaled: the norms enter the margin loss (`smoothcert.training.margin`), which keeps them small. Unless
    it is `orthogonal`: then all layers but the last are 1-Lipschitz by design, and the loss knows the slope
    (`smoothcert.training.offset`).
    """

    def __init__(
        self,
        num_classes: int,
        width: int,
        depth: int,
        dense: int,
        input_shape: tuple[int, int, int],
        orthogonal: bool = False,
    ) -> None:
        super().__init__()
        channels, height, length = input_shape
        if height % 8 or length % 8:
            raise InputError(f"liresnet takes images whose sides are multiples of 8, not {height}×{length}.")
        if min(width, depth, dense) < 1 or width % 2 or dense % 2:
            raise InputError("liresnet pairs its channels: width and dense are even, and depth is at least 1.")
        self.input_shape, self.orthogonal = input_shape, orthogonal
        make = _orthogonal_layers if orthogonal else _free_layers
        self.layers = nn.Sequential(
            Normalize((0.5,) * channels, (1.0,) * channels),
            *make(channels, width, depth, dense, height * length // 64),
            NormalizedLinear(dense, num_classes),
        )
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        # Its bound is for this shape: another may fit, and be steeper. An assertion that torch.fx can trace.
        takes = f"this liresnet takes images of shape {self.input_shape}."
        torch._assert(x.shape[1:] == self.input_shape, takes)  # type: ignore[no-untyped-call]
        scores: Tensor = self.layers(x)
        return scores

    def lipschitz_bound(self) -> float:
        """A proved bound of `‖f(x) − f(y)‖₂ / ‖x − y‖₂`: the product of the layers' bounds in the Fourier domain."""
        return product(self.layers, self.input_shape).value


def _free_layers(channels: int, width: int, depth: int, dense: int, patches: int) -> list[nn.Module]:
    """Layers whose norms are free; they start near 1."""
    stem = nn.Conv2d(channels, width, 5, stride=2, padding=2)
    blocks = [ResidualConv2d(width) for _ in range(depth)]
    neck, last = nn.Conv2d(width, width, 4, stride=4), nn.Linear(width * patches, dense)
    for block in blocks:
        nn.init.normal_(block.weight, std=0.1 / math.sqrt(9 * width * depth))
    for layer in (stem, neck, last):
        nn.init.orthogonal_(layer.weight)
    with torch.no_grad():
        stem.weight /= 2  # an input meets about (5/2)² windows of the stem, so that its norm is near 1
    return [*_activated(stem, *blocks, neck), nn.Flatten(), *_activated(last)]


def _orthogonal_layers(channels: int, width: int, depth: int, dense: int, patches: int) -> list[nn.Module]:
    """Layers of norm 1; the neck is four times as wide: no larger weights make up for what it drops."""
    stem = OrthogonalConv2d(4 * channels, width)
    blocks = [OrthogonalConv2d(width, width) for _ in range(depth)]
    neck, last = OrthogonalPatches(width, 4 * width, 4), OrthogonalLinear(4 * width * patches, dense)
    return [nn.PixelUnshuffle(2), *_activated(stem, *blocks, neck), nn.Flatten(), *_activated(last)]


def _activated(*layers: nn.Module) -> list[nn.Module]:
    """Each layer, and MinMax behind it."""
    return [module for layer in layers for module in (layer, MinMax())]


def liresnet(
    *,
    num_classes: int = 10,
    width: int = 48,
    depth: int = 4,
    dense: int = 256,
    input_shape: Sequence[int] = (3, 32, 32),
    orthogonal: bool = False,
) -> LiResNet:
    """LiResNet for images in [0, 1]; `depth` counts the residual blocks, `dense` the units of the dense layer.

    The layers of an `orthogonal` one are 1-Lipschitz by design (`smoothcert.models.almost_orthogonal`).
    """
    channels, height, length = input_shape
    return LiResNet(num_classes, width, depth, dense, (channels, height, length), bool(orthogonal))
