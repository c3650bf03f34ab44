"""What a training is between two epochs, and the files that keep it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer

from smoothcert.errors import InputError, RunError
from smoothcert.files import replace_whole
from smoothcert.models.checkpoints import CONFIGURATION
from smoothcert.training.configuration import Configuration, Epoch

STATE = "state.safetensors"
"""The file in a training's folder from which it goes on."""

_SLOTS = {"momentum": "momentum_buffer", "mean": "exp_avg", "square": "exp_avg_sq", "steps": "step"}
"""What an optimiser keeps for each parameter: our name in the file, and torch's."""


@dataclass
class State:
    """The model, its loss and optimiser, and the epochs that are done."""

    model: nn.Module
    loss: nn.Module
    optimizer: Optimizer
    log: list[Epoch] = field(default_factory=list)

    def tensors(self) -> dict[str, Tensor]:
        """All that changes from step to step, by name."""
        parts = {"model": self.model.state_dict(), "loss": self.loss.state_dict()}
        for part, slot in _SLOTS.items():
            parts[part] = {
                name: self.optimizer.state[parameter][slot]
                for name, parameter in self.model.named_parameters()
                if slot in self.optimizer.state[parameter]
            }
        return {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}

    def take_over(self, tensors: Mapping[str, Tensor], log: str) -> None:
        """Become what `tensors` and the log said."""
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "loss": {}, **{part: {} for part in _SLOTS}}
        for key, tensor in tensors.items():
            part, name = key.split(".", 1)
            parts[part][name] = tensor
        self.model.load_state_dict(parts["model"])
        self.loss.load_state_dict(parts["loss"])
        for part, slot in _SLOTS.items():
            for name, tensor in parts[part].items():
                parameter = self.model.get_parameter(name)
                value = tensor if slot == "step" else torch.empty_like(parameter).copy_(tensor)
                self.optimizer.state[parameter][slot] = value
        self.log = [Epoch(**entry) for entry in json.loads(log)]


@dataclass(frozen=True)
class Folder:
    """Where a training of that configuration, and of no other, keeps its state."""

    path: Path
    configuration: Configuration

    def restore(self, state: State) -> None:
        """Take over what the folder holds; an empty one, or none, leaves the state as it is."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"the folder {self.path} cannot be made ({error.strerror}): choose another `out`."
            ) from None
        path = self.path / STATE
        if not path.is_file():
            return
        try:
            with safe_open(path, framework="pt") as file:
                about = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path} cannot be read ({error}): choose another `out`.") from None
        try:
            self.configuration.require_equal(about.get(CONFIGURATION, "{}"), self.path)
            state.take_over(tensors, about["log"])
        except InputError:
            raise
        except Exception as error:  # whatever a state lacks that another program, or nobody, has written
            raise InputError(f"{path} is no state of this training: choose another `out`.") from error

    def save(self, state: State) -> None:
        """Each file is written whole and renamed; the state comes last, so that what it lacks is done again."""
        now = state.log[-1]
        about = {"epoch": str(now.epoch), "accuracy": str(now.judged)}
        weights = state.model.state_dict()
        lines = [json.dumps(asdict(epoch)) for epoch in state.log]
        try:
            self._write("last.safetensors", self._file(weights, about))
            if now.judged >= max(epoch.judged for epoch in state.log):
                self._write("best.safetensors", self._file(weights, about))
            self._write("log.jsonl", "".join(f"{line}\n" for line in lines).encode())
            self._write(STATE, self._file(state.tensors(), {"log": f"[{','.join(lines)}]"}))
        except OSError as error:
            raise RunError(
                f"epoch {now.epoch} cannot be kept in {self.path} ({error.strerror}): make room and run the same again."
            ) from None

    def _file(self, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> bytes:
        # Cloned, because the format has no two names for one tensor, and a network may.
        plain = {
            key: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for key, tensor in tensors.items()
        }
        return save(plain, {CONFIGURATION: self.configuration.text, **about})

    def _write(self, name: str, content: bytes) -> None:
        replace_whole(self.path / name, lambda file: file.write(content))
