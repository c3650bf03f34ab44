"""A small network for scikit-learn's 8×8 digits: the demo's model."""

from __future__ import annotations

from torch import nn


def digits_cnn(*, num_classes: int = 10) -> nn.Sequential:
    """Two convolutions (8×8 to 4×4 to 2×2) and two linear layers for (1, 8, 8) inputs in [0, 1].

    It shrinks the image at once, so that a draw costs about 31 000 multiplications.
    """
    return nn.Sequential(
        nn.Conv2d(1, 16, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 2 * 2, 64),
        nn.ReLU(),
        nn.Linear(64, num_classes),
    )
