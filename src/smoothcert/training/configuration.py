"""What a training is, and what it says of each epoch."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from smoothcert.errors import InputError
from smoothcert.options import option
from smoothcert.training.presets import PRESETS


@dataclass(frozen=True)
class Recipe:
    """How a network is trained, as it is asked for."""

    sigma: float = option(help="Standard deviation of the noise in training; 0 for none.")
    preset: str = option("fast", help="fast (one cycle, 10 epochs), cohen (steps, 90 epochs) or adam (100 epochs).")
    epochs: int | None = option(None, help="Epochs; the preset's unless given.")
    batch: int = option(256, help="Images a step.")
    rate: float | None = option(None, help="Largest learning rate; the preset's unless given.")
    margin: float = option(0.25, help="Radius that liresnet is trained to prove.")
    temperature: float = option(1.0, help="What the loss divides the scores by; 0.2 for a network that is 1-Lipschitz.")
    augment: bool = option(True, help="Random crops and flips.", flag="augment/--no-augment")
    precision: str = option("auto", help="bf16, fp32, or auto: bf16 where the hardware has it.")
    seed: int = option(0, help="Names the first weights, the order and the noise.")

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise InputError(f"there is no preset {self.preset!r}: choose one of {', '.join(PRESETS)}.")
        if self.precision not in ("auto", "bf16", "fp32"):
            raise InputError(f"there is no precision {self.precision!r}: choose auto, bf16 or fp32.")


@dataclass(frozen=True)
class Configuration:
    """All that decides the weights, up to the rounding of the machine; every file of the training keeps it.

    `data` and `validation` are fingerprints; `margin` is the radius of the margin loss, None for the cross entropy;
    `temperature` is what the loss divides the scores by.
    """

    arch: str
    options: dict[str, Any]
    data: str
    validation: str | None
    sigma: float
    preset: str
    epochs: int
    batch: int
    rate: float
    margin: float | None
    temperature: float
    augment: bool
    precision: str
    seed: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise InputError(f"sigma is {self.sigma}: it is a standard deviation, 0 for training without noise.")
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
        there = {"temperature": 1.0, **json.loads(text)}  # the only one before it was a choice
        for name in here:
            if here[name] != there.get(name):
                raise InputError(
                    f"{where} holds a training with {name} {there.get(name)}, not {here[name]}: choose another `out`."
                )


@dataclass(frozen=True)
class Epoch:
    """A line of the log: mean loss and accuracy on the augmented noisy images, and accuracy on the validation images.

    `rate` is that of the last step.
    """

    epoch: int
    rate: float
    loss: float
    accuracy: float
    validation: float | None
    seconds: float

    @property
    def judged(self) -> float:
        return self.accuracy if self.validation is None else self.validation
