"""Trains the demo's network: python -m smoothcert.training.digits OUT.safetensors"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from smoothcert.data import digits
from smoothcert.models import build
from smoothcert.training.gaussian import train_with_noise


def training_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """The images and labels of the 1 497 training digits."""
    examples = list(map(digits(train=True).__getitem__, range(len(digits(train=True)))))
    return torch.from_numpy(np.stack([e.array for e in examples])), torch.tensor([e.label for e in examples])


def train_digits(sigma: float = 0.25, epochs: int = 300, seed: int = 0) -> torch.nn.Module:
    """digits_cnn after training on the 1 497 training digits under noise; about ten seconds on two cores."""
    images, labels = training_digits()
    torch.manual_seed(seed)
    module = build("digits_cnn")
    train_with_noise(module, images, labels, sigma=sigma, epochs=epochs, seed=seed)
    return module


if __name__ == "__main__":
    save_file(train_digits().state_dict(), Path(sys.argv[1]))
