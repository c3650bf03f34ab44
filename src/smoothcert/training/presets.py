"""Schedules of the learning rate, and what belongs to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """Settings of stochastic gradient descent; `schedule` maps the share of the training that is done to a factor."""

    epochs: int
    rate: float
    weight_decay: float
    nesterov: bool
    schedule: Callable[[float], float]
    momentum: float = 0.9


def thirds(done: float) -> float:
    """A tenth after each third: every 30 of 90 epochs in Cohen et al. (2019)."""
    return 0.1 ** int(3 * done)


def one_cycle(done: float) -> float:
    """Up to the peak in the first fifth, then down to zero, both straight (Smith and Topin, 2018)."""
    return min(done / 0.2, (1 - done) / 0.8)


PRESETS = {
    "cohen": Preset(epochs=90, rate=0.1, weight_decay=1e-4, nesterov=False, schedule=thirds),
    "fast": Preset(epochs=10, rate=0.2, weight_decay=5e-4, nesterov=True, schedule=one_cycle),
}
