"""One training: from a configuration to weights, the same ones however often it is stopped on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.data import Dataset, as_dataset, digits, open_data
from smoothcert.errors import InputError
from smoothcert.models.liresnet import LiResNet
from smoothcert.models.loading import choose_device
from smoothcert.options import keywords, make
from smoothcert.records import record
from smoothcert.training.configuration import Configuration, Epoch, Recipe
from smoothcert.training.loop import Loop, generator_of
from smoothcert.training.margin import MarginLoss
from smoothcert.training.network import (
    channels_last,
    choose_precision,
    count_scores,
    fingerprint,
    first_network,
    freeze,
)
from smoothcert.training.objectives import Macer
from smoothcert.training.offset import OffsetLoss
from smoothcert.training.pictures import Held, Streamed, spread, workers_for
from smoothcert.training.presets import PRESETS


@keywords(Recipe)
def train(
    arch: str,
    data: Any,
    *,
    out: str | Path,
    validation: Any = None,
    weights: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    device: str = "auto",
    on_progress: Callable[[int, float], None] = lambda images, done: None,
    **given: Any,
) -> list[Epoch]:
    """Train a network under Gaussian noise and return the log.

    `arch` is a built-in architecture or package.module:factory, which returns a torch module; it starts from `weights`
    where these are given. Each image is cropped, flipped and gets noise N(0, σ² I); what its scores are trained for
    is the `objective` (`smoothcert.training.objectives`). They are divided by `temperature`: those of a 1-Lipschitz
    network are too close together for a temperature of 1. liresnet has the margin loss up to the radius `margin`.

    After each epoch the folder `out` holds `last.safetensors`, `best.safetensors` (by accuracy under noise on the
    validation data, or without it on the training data), `log.jsonl`, and `state.safetensors`, from which the same call
    goes on and ends with the same weights.
    """
    recipe = make(Recipe, given)
    preset = PRESETS[recipe.preset]
    where = choose_device(device)
    rows = open_training_data(data) if isinstance(data, str) else as_dataset(data)
    held_out = None if validation is None else as_dataset(validation)
    if recipe.augment and len(rows.shape) != 3:
        raise InputError(
            f"crops and flips are for images, and inputs have the shape {rows.shape}: switch off `augment`."
        )
    if isinstance(recipe.objective, Macer) and (arch.startswith("liresnet") or recipe.temperature != 1):
        raise InputError(
            "macer has a cross entropy of its own, without `temperature` or margin: choose another `objective`."
        )
    readers = workers_for(rows, recipe.workers)
    start = None if weights is None else Path(weights)
    model, built_with = first_network(arch, rows, options or {}, start, recipe.seed)
    classes = count_scores(model, arch, rows.shape)
    model = channels_last(model).to(where)
    configuration = Configuration(
        arch=arch,
        options=built_with,
        data=rows.fingerprint,
        validation=None if held_out is None else held_out.fingerprint,
        sigma=recipe.sigma,
        least_sigma=None,
        preset=recipe.preset,
        epochs=preset.epochs if recipe.epochs is None else recipe.epochs,
        batch=recipe.batch,
        rate=preset.rate if recipe.rate is None else recipe.rate,
        margin=recipe.margin if isinstance(model, LiResNet) else None,
        temperature=recipe.temperature,
        augment=recipe.augment,
        precision=choose_precision(recipe.precision, model, rows.shape),
        seed=recipe.seed,
        objective=record(recipe.objective),
        weights=None if start is None and ":" not in arch else fingerprint(model),
        freeze=recipe.freeze,
        streamed=readers > 0,
    )
    loop = Loop(
        model,
        configuration,
        Path(out),
        objective=recipe.objective,
        criterion=_criterion(model, configuration),
        frozen=freeze(model, recipe.freeze or ""),
    )
    if len(loop.state.log) < configuration.epochs:
        pictures = Streamed(rows, classes, where, readers) if readers else Held(rows, classes, where)
        judges = None if held_out is None else Held(held_out, classes, where, spread(held_out))
        loop.run(pictures, judges, on_progress)
    return loop.state.log


def open_training_data(spec: str, **how: Any) -> Dataset:
    """The data set that `spec` names; as training data, `digits` are those that are not held out.

    How images are read is said as to `open_data`.
    """
    return digits(train=True) if spec == "digits" else open_data(spec, **how)


def _criterion(model: nn.Module, configuration: Configuration) -> nn.Module:
    """The margin or the offset loss of liresnet, the cross entropy of all others."""
    if not isinstance(model, LiResNet) or configuration.margin is None:
        return _CrossEntropy(configuration.temperature)
    if model.orthogonal:
        return OffsetLoss(model, configuration.margin, configuration.temperature)
    generator = generator_of(configuration.seed, "loss", 0, torch.device("cpu"))
    return MarginLoss(model, configuration.margin, generator, configuration.temperature)


class _CrossEntropy(nn.CrossEntropyLoss):
    """Of the scores divided by a temperature."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        return super().forward(scores / self.temperature, labels)
