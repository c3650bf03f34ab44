"""The schedules, against torch's."""

import pytest
import torch

from smoothcert.training.presets import PRESETS


def test_cohens_schedule_is_step_lr_with_30_epochs():
    preset = PRESETS["cohen"]
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=preset.rate)
    steps = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    for epoch in range(preset.epochs):
        assert preset.rate * preset.schedule(epoch / preset.epochs) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        steps.step()


def test_the_cycle_is_torchs_with_straight_lines():
    steps = 1000
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.2)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.2, total_steps=steps + 1, pct_start=0.2, anneal_strategy="linear", div_factor=1e9
    )
    for step in range(steps):
        rate = 0.2 * PRESETS["fast"].schedule(step / steps)
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"], abs=2e-3)
        optimizer.step()
        cycle.step()
