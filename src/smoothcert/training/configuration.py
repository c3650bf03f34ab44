"""What a training is, and what it says of each epoch."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from smoothcert.errors import InputError
from smoothcert.options import named, option
from smoothcert.training.objectives import OBJECTIVES, Consistency, Gaussian, Macer, SmoothAdv
from smoothcert.training.presets import PRESETS

WORKERS = "Processes that read the data from disk; 0 where these fit into half of the memory, and are held there."


@dataclass(frozen=True)
class Recipe:
    """How a network is trained, as it is asked for."""

    sigma: float = option(help="Standard deviation of the noise in training; 0 for none.")
    objective: Gaussian | Consistency | SmoothAdv | Macer = named(
        *OBJECTIVES, help=f"What is trained for: {', '.join(kind.name for kind in OBJECTIVES)}."
    )
    preset: str = option("fast", help="fast (one cycle, 10 epochs), cohen (steps, 90 epochs) or adam (100 epochs).")
    epochs: int | None = option(None, help="Epochs; the preset's unless given.")
    batch: int = option(256, help="Images a step.")
    rate: float | None = option(None, help="Largest learning rate; the preset's unless given.")
    margin: float = option(0.25, help="Radius that liresnet is trained to prove.")
    temperature: float = option(1.0, help="What the loss divides the scores by; 0.2 for a network that is 1-Lipschitz.")
    freeze: str | None = option(None, help="Parts that stay as they are, by name, as 'features.*'; commas between.")
    augment: bool = option(True, help="Random crops and flips.", flag="augment/--no-augment")
    precision: str = option("auto", help="bf16, fp32, or auto: bf16 where the hardware has it.")
    workers: int | None = option(None, help=WORKERS)
    seed: int = option(0, help="Names the first weights, the order and the noise.")

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise InputError(f"there is no preset {self.preset!r}: choose one of {', '.join(PRESETS)}.")


_BEFORE = {
    "least_sigma": None,
    "temperature": 1.0,
    "objective": {"kind": "gaussian"},
    "weights": None,
    "freeze": None,
    "streamed": False,
}
"""What there was before it was a choice."""


@dataclass(frozen=True)
class Configuration:
    """All that decides the weights, up to the rounding of the machine; every file of the training keeps it.

    `data` and `validation` are fingerprints, and so are `weights`, the first ones where the seed does not name them.
    With `least_sigma` each image's noise lies between that and `sigma`. `margin` is the radius of the margin loss, None
    for the cross entropy; `temperature` is what the loss divides the scores by.
    """

    arch: str
    options: dict[str, Any]
    data: str
    validation: str | None
    sigma: float
    least_sigma: float | None
    preset: str
    epochs: int
    batch: int
    rate: float
    margin: float | None
    temperature: float
    augment: bool
    precision: str
    seed: int
    objective: dict[str, Any]
    weights: str | None
    freeze: str | None
    streamed: bool

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise InputError(f"sigma is {self.sigma}: it is a standard deviation, 0 for training without noise.")
        if self.seed < 0:
            raise InputError(f"the seed is {self.seed}: it must be at least 0.")
        for name in ("epochs", "batch", "rate", "margin", "temperature"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} is {value}: it must be above 0.")

    @property
    def text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    def require_equal(self, text: str, where: object) -> None:
        """Refuse to go on with the training of another configuration."""
        here = json.loads(self.text)
        there = {**_BEFORE, **json.loads(text)}
        for name in here:
            if here[name] != there.get(name):
                raise InputError(
                    f"{where} holds a training with {name} {there.get(name)}, not {here[name]}: choose another `out`."
                )


@dataclass(frozen=True)
class Epoch:
    """A line of the log: mean loss and accuracy on the augmented noisy images, and accuracy on the validation images.

    `rate` is that of the last step; `cpu_seconds` add up over the processor's cores.
    """

    epoch: int
    rate: float
    loss: float
    accuracy: float
    validation: float | None
    seconds: float
    cpu_seconds: float | None = None

    @property
    def judged(self) -> float:
        return self.accuracy if self.validation is None else self.validation
