"""One training: from a configuration to weights, the same ones however often it is stopped on the way."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.data import Dataset, as_dataset, digits, open_data, select
from smoothcert.errors import InputError, RunError
from smoothcert.models import build
from smoothcert.models.liresnet import LiResNet
from smoothcert.models.loading import choose_device
from smoothcert.options import keywords, make
from smoothcert.training.augment import crops_and_flips
from smoothcert.training.configuration import Configuration, Epoch, Recipe
from smoothcert.training.margin import MarginLoss
from smoothcert.training.presets import PRESETS
from smoothcert.training.state import Folder, State

VALIDATION_IMAGES = 1000
"""At most so many images, spread over the validation data, judge an epoch."""


@keywords(Recipe)
def train(
    arch: str,
    data: Any,
    *,
    out: str | Path,
    validation: Any = None,
    options: Mapping[str, Any] | None = None,
    device: str = "auto",
    on_progress: Callable[[int, float], None] = lambda images, done: None,
    **given: Any,
) -> list[Epoch]:
    """Train a built-in architecture under Gaussian noise (Cohen et al., 2019) and return the log.

    Each image is cropped, flipped and gets noise N(0, σ² I); the loss is the cross entropy of the scores divided by
    `temperature`, for liresnet the margin loss up to the radius `margin`. The scores of a 1-Lipschitz network are too
    close together for a temperature of 1.

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
    built_with = {**_fixed_options(arch, rows), **(options or {})}
    model = _build(arch, built_with, rows.shape, recipe.seed).to(where)
    configuration = Configuration(
        arch=arch,
        options=built_with,
        data=rows.fingerprint,
        validation=None if held_out is None else held_out.fingerprint,
        sigma=recipe.sigma,
        preset=recipe.preset,
        epochs=preset.epochs if recipe.epochs is None else recipe.epochs,
        batch=recipe.batch,
        rate=preset.rate if recipe.rate is None else recipe.rate,
        margin=recipe.margin if arch == "liresnet" else None,
        temperature=recipe.temperature,
        augment=recipe.augment,
        precision=_precision(recipe.precision, model, rows.shape),
        seed=recipe.seed,
    )
    training = _Training(model, configuration, Path(out), where)
    if len(training.state.log) < configuration.epochs:
        images, labels = _load(rows, range(len(rows)), where)
        if int(labels.max()) >= built_with["num_classes"]:
            raise InputError(f"{rows.description} has the label {int(labels.max())}: give a larger num_classes.")
        judges = None if held_out is None else _load(held_out, _spread(held_out), where)
        training.run(images, labels, judges, on_progress)
    return training.state.log


def open_training_data(spec: str, **how: Any) -> Dataset:
    """The data set that `spec` names; as training data, `digits` are those that are not held out.

    How images are read is said as to `open_data`.
    """
    return digits(train=True) if spec == "digits" else open_data(spec, **how)


def _fixed_options(arch: str, data: Dataset) -> dict[str, Any]:
    """The options that the data decide."""
    classes = data.classes or range(1 + max(data[row].label for row in range(len(data))))
    fixed: dict[str, Any] = {"num_classes": len(classes)}
    return {**fixed, "input_shape": list(data.shape)} if arch == "liresnet" else fixed


def _precision(asked: str, model: nn.Module, shape: tuple[int, ...]) -> str:
    """bfloat16 where the hardware multiplies it, which halves the time of a step, and multiplies it right.

    On CPUs oneDNN computes some strided convolutions wrongly in bfloat16 (PyTorch issues 163347 and 169688).
    """
    device = next(model.parameters()).device
    native = {"cuda": torch.cuda.is_bf16_supported, "cpu": getattr(torch.cpu, "_is_avx512_bf16_supported", bool)}
    if asked == "fp32" or (asked == "auto" and not native.get(device.type, bool)()):
        return "fp32"
    x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)).to(device)
    with torch.no_grad():
        exact, rounded = model.eval()(x), _scores(model, x, "bf16")
    if float((rounded - exact).norm()) <= 0.25 * float(exact.norm()):
        return "bf16"
    if asked == "auto":
        return "fp32"
    raise InputError("the scores of this network are wrong in bf16 on this device: use the `precision` fp32.")


def _scores(model: nn.Module, x: Tensor, precision: str) -> Tensor:
    """The scores in float32, of convolutions and products in the precision."""
    x = x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x
    with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
        scores: Tensor = model(x)
    return scores.float()


def _load(data: Dataset, rows: range, device: torch.device) -> tuple[Tensor, Tensor]:
    """The images, as bytes where they are bytes, and the labels."""
    images = np.empty((len(rows), *data.shape), np.uint8 if data.eight_bit else np.float32)
    labels = np.empty(len(rows), np.int64)
    for i, row in enumerate(rows):
        example = data[row]
        images[i] = np.rint(255 * example.array) if data.eight_bit else example.array
        labels[i] = example.label
    return torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device)


def _spread(data: Dataset) -> range:
    return select(data, skip=-(-len(data) // VALIDATION_IMAGES))


def _build(arch: str, options: dict[str, Any], shape: tuple[int, ...], seed: int) -> nn.Module:
    """The network with its first weights, once it has taken an input."""
    if seed < 0:
        raise InputError(f"the seed is {seed}: it must be at least 0.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build(arch, **options)
    try:
        model.eval()(torch.zeros(1, *shape))
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{arch} does not take inputs of shape {shape} ({reason}): choose another `arch`.") from None
    channels_last: nn.Module = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return channels_last


class _CrossEntropy(nn.CrossEntropyLoss):
    """Of the scores divided by a temperature."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        return super().forward(scores / self.temperature, labels)


class _Training:
    """The loop: from epoch to epoch, each kept when it is done."""

    def __init__(self, model: nn.Module, configuration: Configuration, out: Path, device: torch.device) -> None:
        self.model, self.configuration, self.device = model, configuration, device
        self.loss: nn.Module = _CrossEntropy(configuration.temperature)
        if isinstance(model, LiResNet) and configuration.margin is not None:
            generator = self._generator("loss", 0, torch.device("cpu"))
            self.loss = MarginLoss(model, configuration.margin, generator, configuration.temperature)
        preset = PRESETS[configuration.preset]
        self.schedule = preset.schedule
        self.optimizer = preset.optimizer(model.parameters(), lr=configuration.rate)
        self.state = State(model, self.loss, self.optimizer)
        self.folder = Folder(out, configuration)
        self.folder.restore(self.state)

    def run(
        self,
        images: Tensor,
        labels: Tensor,
        judges: tuple[Tensor, Tensor] | None,
        on_progress: Callable[[int, float], None],
    ) -> None:
        epochs = self.configuration.epochs
        on_progress(0, len(self.state.log) / epochs)
        seen = 0
        for epoch in range(len(self.state.log) + 1, epochs + 1):
            started = time.perf_counter()
            loss, right, done = 0.0, 0, 0
            self.model.train()
            for x, y, share in self._batches(images, labels, epoch):
                value, correct = self._step(x, y, (epoch - 1 + share) / epochs)
                loss, right, done = loss + value * len(y), right + correct, done + len(y)
                if not math.isfinite(loss):
                    raise RunError(f"the loss is not finite in epoch {epoch}: start again with a smaller `rate`.")
                on_progress(seen + done, (epoch - 1 + done / len(images)) / epochs)
            seen += done
            accuracy = None if judges is None else self._accuracy(*judges)
            seconds = round(time.perf_counter() - started, 2)
            rate = self.optimizer.param_groups[0]["lr"]
            self.state.log.append(Epoch(epoch, rate, loss / done, right / done, accuracy, seconds))
            self.folder.save(self.state)
        self.model.eval()

    def _generator(self, purpose: str, number: int, device: torch.device) -> torch.Generator:
        """A stream for each epoch and purpose, so that nothing of it need be kept for resuming."""
        entropy = [self.configuration.seed, number, *purpose.encode()]
        seed = int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)
        return torch.Generator(device).manual_seed(seed)

    def _batches(self, images: Tensor, labels: Tensor, epoch: int) -> Iterator[tuple[Tensor, Tensor, float]]:
        """Augmented noisy images in random order, their labels, and the share of the epoch before them."""
        generator = self._generator("training", epoch, self.device)
        order = torch.randperm(len(images), generator=generator, device=self.device)
        for start in range(0, len(order), self.configuration.batch):
            rows = order[start : start + self.configuration.batch]
            x = images[rows]
            if self.configuration.augment:
                x = crops_and_flips(x, generator)
            yield self._noisy(x, generator), labels[rows], start / len(order)

    def _noisy(self, images: Tensor, generator: torch.Generator) -> Tensor:
        x = images / 255 if images.dtype == torch.uint8 else images
        if self.configuration.sigma > 0:
            x = x + self.configuration.sigma * torch.randn(x.shape, generator=generator, device=self.device)
        return x

    def _step(self, x: Tensor, y: Tensor, done: float) -> tuple[float, int]:
        for group in self.optimizer.param_groups:
            group["lr"] = self.configuration.rate * self.schedule(done)
        scores = _scores(self.model, x, self.configuration.precision)
        loss = self.loss(scores, y)
        self.optimizer.zero_grad()
        loss.backward()
        if isinstance(self.loss, MarginLoss):  # its slope is a product over the layers, and so are its gradients
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return float(loss.detach()), int((scores.detach().argmax(1) == y).sum())

    @torch.no_grad()
    def _accuracy(self, images: Tensor, labels: Tensor) -> float:
        """Under noise, the same in every epoch."""
        self.model.eval()
        generator = self._generator("validation", 0, self.device)
        right = 0
        for start in range(0, len(labels), self.configuration.batch):
            rows = slice(start, start + self.configuration.batch)
            scores = _scores(self.model, self._noisy(images[rows], generator), self.configuration.precision)
            right += int((scores.argmax(1) == labels[rows]).sum())
        return right / len(labels)
