"""Residual networks for 32×32 images (He et al., 2016, section 4.2), as Cohen et al. (2019) train them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from smoothcert.errors import InputError
from smoothcert.models.normalize import Normalize
from smoothcert.models.residual import BasicBlock, convolution, initialise, stage

CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR10_STD = (0.2023, 0.1994, 0.2010)


class CifarResNet(nn.Module):
    """Depth 6k + 2: three stages of k basic blocks with 16, 32 and 64 channels."""

    def __init__(self, depth: int, num_classes: int) -> None:
        super().__init__()
        if depth < 8 or depth % 6 != 2:
            raise InputError(f"cifar_resnet has depth 6k + 2 (20, 32, 44, 56, 110, ...), not {depth}.")
        count = (depth - 2) // 6
        self.conv1 = convolution(3, 16, 3)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = stage(BasicBlock, 16, 16, count, stride=1)
        self.layer2 = stage(BasicBlock, 16, 32, count, stride=2)
        self.layer3 = stage(BasicBlock, 32, 64, count, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, num_classes)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        scores: Tensor = self.fc(self.avgpool(x).flatten(1))
        return scores


def cifar_resnet(
    depth: int,
    *,
    num_classes: int = 10,
    mean: Sequence[float] = CIFAR10_MEAN,
    std: Sequence[float] = CIFAR10_STD,
) -> nn.Sequential:
    """Normalisation, then the network: the layout and the parameter names of `locuslab/smoothing`."""
    return nn.Sequential(Normalize(mean, std), CifarResNet(depth, num_classes))
