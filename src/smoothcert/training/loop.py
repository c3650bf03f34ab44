"""The loop of a training: from epoch to epoch, each kept when it is done."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.errors import RunError
from smoothcert.training.augment import crops_and_flips
from smoothcert.training.configuration import Configuration, Epoch
from smoothcert.training.margin import MarginLoss
from smoothcert.training.network import run
from smoothcert.training.objectives import Objective, Task
from smoothcert.training.offset import OffsetLoss
from smoothcert.training.pictures import Held, Pictures, as_floats
from smoothcert.training.presets import PRESETS
from smoothcert.training.state import Folder, State


class Loop:
    """One training, from the state that its folder keeps to the last epoch."""

    def __init__(
        self,
        model: nn.Module,
        configuration: Configuration,
        out: Path,
        *,
        objective: Objective,
        criterion: nn.Module,
        frozen: Sequence[nn.Module] = (),
        network: nn.Module | None = None,
    ) -> None:
        """`network` is what gives scores, where `model`, whose weights are kept, is only a part of it."""
        self.network, self.configuration = network or model, configuration
        self.objective, self.criterion, self.frozen = objective, criterion, frozen
        self.device = next(model.parameters()).device
        # The slope of the margin loss is a product over the layers, and so are its gradients; the offset loss divides
        # by a small temperature.
        self.clips = objective.clips or isinstance(criterion, MarginLoss | OffsetLoss)
        preset = PRESETS[configuration.preset]
        self.schedule = preset.schedule
        self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.optimizer = preset.optimizer(self.trained, lr=configuration.rate)
        self.state = State(model, criterion, self.optimizer)
        self.folder = Folder(out, configuration)
        self.folder.restore(self.state)

    def run(self, pictures: Pictures, judges: Held | None, on_progress: Callable[[int, float], None]) -> None:
        """The epochs that are left; `judges` are the images that judge each of them."""
        epochs, before, count = self.configuration.epochs, len(self.state.log), len(pictures)
        on_progress(0, before / epochs)
        with _repeatable(self.device):
            for epoch in range(before + 1, epochs + 1):

                def report(done: int, behind: int = epoch - 1) -> None:
                    on_progress((behind - before) * count + done, (behind + done / count) / epochs)

                self.state.log.append(self._epoch(epoch, pictures, judges, report))
                self.folder.save(self.state)
        self.network.eval()

    def _epoch(self, epoch: int, pictures: Pictures, judges: Held | None, report: Callable[[int], None]) -> Epoch:
        wall, cpu = time.perf_counter(), time.process_time()
        generator = generator_of(self.configuration.seed, "training", epoch, self.device)
        torch.manual_seed(generator.initial_seed())  # for what the network draws itself, as dropout does
        self.network.train()
        for part in self.frozen:
            part.eval()
        loss, right, done = 0.0, 0.0, 0
        for x, y in self._batches(pictures, generator):
            share = (epoch - 1 + done / len(pictures)) / self.configuration.epochs
            value, accuracy = self._step(x, y, share, generator)
            loss, right, done = loss + value * len(y), right + accuracy * len(y), done + len(y)
            if not math.isfinite(loss):
                raise RunError(self._explosion(epoch))
            report(done)
        judged = None if judges is None else self._accuracy(judges)
        seconds, used = (round(s, 2) for s in (time.perf_counter() - wall, time.process_time() - cpu))
        return Epoch(epoch, self._rate, loss / done, right / done, judged, seconds, used)

    @property
    def _rate(self) -> float:
        rate: float = self.optimizer.param_groups[0]["lr"]
        return rate

    def _batches(self, pictures: Pictures, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Augmented images in random order, and their labels."""
        for x, y in pictures.batches(pictures.order(generator), self.configuration.batch):
            yield as_floats(crops_and_flips(x, generator) if self.configuration.augment else x), y

    def _noise(self, generator: torch.Generator, x: Tensor) -> Tensor:
        most, least = self.configuration.sigma, self.configuration.least_sigma
        if most == 0:
            return torch.zeros_like(x)
        noise = torch.randn(x.shape, generator=generator, device=self.device)
        if least is None:
            return most * noise
        places = torch.rand(len(x), *(1 for _ in x.shape[1:]), generator=generator, device=self.device)
        return (least + (most - least) * places) * noise

    def _run(self, network: nn.Module, x: Tensor) -> Tensor:
        return run(network, x, self.configuration.precision)

    def _step(self, x: Tensor, y: Tensor, done: float, generator: torch.Generator) -> tuple[float, float]:
        for group in self.optimizer.param_groups:
            group["lr"] = self.configuration.rate * self.schedule(done)
        noise = partial(self._noise, generator)
        task = Task(self.network, self._run, self.criterion, noise, self.configuration.sigma)
        loss, right = self.objective.loss(task, x, y)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        if self.clips:
            nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        return float(loss.detach()), float(right)

    @torch.no_grad()
    def _accuracy(self, judges: Held) -> float:
        """Under noise, the same in every epoch."""
        self.network.eval()
        generator = generator_of(self.configuration.seed, "validation", 0, self.device)
        right = 0
        for x, y in judges.batches(torch.arange(len(judges), device=self.device), self.configuration.batch):
            clean = as_floats(x)
            right += int((self._run(self.network, clean + self._noise(generator, clean)).argmax(1) == y).sum())
        return right / len(judges)

    def _explosion(self, epoch: int) -> str:
        largest = self.configuration.rate
        return (
            f"the loss is not finite in epoch {epoch}, at the learning rate {self._rate:.3g}: start again with a "
            f"smaller `rate`, such as {largest / 4:.2g} instead of {largest:g}, and another `out`."
        )


@contextmanager
def _repeatable(device: torch.device) -> Iterator[None]:
    """The same arithmetic each time; torch's flags and its own stream of random numbers are then as they were."""
    cuda = device.type == "cuda"
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if cuda:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # which cuBLAS asks for
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with torch.random.fork_rng([device] if cuda else []):
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def generator_of(seed: int, purpose: str, number: int, device: torch.device) -> torch.Generator:
    """A stream for each epoch and purpose, so that nothing of it need be kept for resuming."""
    entropy = [seed, number, *purpose.encode()]
    state = int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)
    return torch.Generator(device).manual_seed(state)
