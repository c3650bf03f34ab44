"""Training under Gaussian noise (Cohen et al., 2019): the base classifier sees what it is certified on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional


def train_with_noise(
    module: torch.nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    sigma: float,
    epochs: int,
    batch: int = 128,
    learning_rate: float = 3e-3,
    seed: int = 0,
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
) -> None:
    """Minimises the cross entropy of x + N(0, σ² I) with Adam and a one-cycle schedule; seeded, in place."""
    generator = torch.Generator(device=images.device).manual_seed(seed)
    steps = -(-len(images) // batch)
    optimizer = torch.optim.Adam(module.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=epochs * steps)
    module.train()
    for epoch in range(epochs):
        total = 0.0
        order = torch.randperm(len(images), generator=generator, device=images.device)
        for start in range(0, len(images), batch):
            rows = order[start : start + batch]
            noise = torch.randn(images[rows].shape, generator=generator, device=images.device)
            loss = functional.cross_entropy(module(images[rows] + sigma * noise), labels[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            total += loss.item() * len(rows)
        on_epoch(epoch, total / len(images))
    module.eval()
