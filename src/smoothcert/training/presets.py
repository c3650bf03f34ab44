"""Optimisers and schedules of the learning rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch.optim import SGD, Adam, Optimizer


@dataclass(frozen=True)
class Preset:
    """`schedule` maps the share of the training that is done to a factor of `rate`."""

    epochs: int
    rate: float
    optimizer: Callable[..., Optimizer]
    schedule: Callable[[float], float]


def thirds(done: float) -> float:
    """A tenth after each third: every 30 of 90 epochs in Cohen et al. (2019)."""
    return 0.1 ** int(3 * done)


def one_cycle(done: float) -> float:
    """Up to the peak in the first fifth, then down to zero, both straight (Smith and Topin, 2018)."""
    return min(done / 0.2, (1 - done) / 0.8)


PRESETS = {
    "cohen": Preset(90, 0.1, partial(SGD, momentum=0.9, weight_decay=1e-4), thirds),
    "fast": Preset(10, 0.2, partial(SGD, momentum=0.9, weight_decay=5e-4, nesterov=True), one_cycle),
    "adam": Preset(100, 3e-3, Adam, one_cycle),
}
