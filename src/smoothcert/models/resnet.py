"""ResNet-50 for ImageNet (He et al., 2016), with torchvision's parameter names."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from smoothcert.models.normalize import Normalize
from smoothcert.models.residual import Bottleneck, initialise, stage

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class ResNet50(nn.Module):
    """Four stages of 3, 4, 6 and 3 bottleneck blocks."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = stage(Bottleneck, 64, 64, 3, stride=1)
        self.layer2 = stage(Bottleneck, 256, 128, 4, stride=2)
        self.layer3 = stage(Bottleneck, 512, 256, 6, stride=2)
        self.layer4 = stage(Bottleneck, 1024, 512, 3, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(2048, num_classes)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: Tensor = self.fc(self.avgpool(x).flatten(1))
        return scores


def resnet50(
    *, num_classes: int = 1000, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD
) -> nn.Sequential:
    """Normalisation, then the network, as `locuslab/smoothing` wraps torchvision's."""
    return nn.Sequential(Normalize(mean, std), ResNet50(num_classes))
