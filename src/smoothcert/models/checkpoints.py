"""Weights from files: torch checkpoints and safetensors, and the names they are saved under."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from threading import get_ident
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from smoothcert.errors import InputError
from smoothcert.models.pickles import Strided
from smoothcert.models.torch_files import open_torch_file

State = dict[str, Tensor]

CONFIGURATION = "configuration"
"""The entry of a safetensors file's metadata with the configuration of its training, as JSON."""

_ENTRIES = ("state_dict", "model")
"""Where checkpoints keep their weights."""

_MOST = 50_000
"""Weights in a file."""


def load_weights(module: nn.Module, path: str | Path) -> None:
    """Load a checkpoint into the module: every weight of it, or an error and the module as it was.

    The file is `.safetensors`, or a state dict written by `torch.save`, alone or as entry `state_dict` or `model`. Its
    names may be the module's own, those of the module saved from `DataParallel` (`module.conv1.weight`,
    `1.module.conv1.weight`), or those of the bare network behind a normalisation layer (`conv1.weight` for
    `1.conv1.weight`). Nothing in the file is executed, and no pickle of it loaded.
    """
    fit_weights(module, read_weights(Path(path)), Path(path))


def fit_weights(module: nn.Module, state: State, path: Path) -> None:
    """Loads what was read from the file."""
    expected: State = module.state_dict()
    best = _best_fit(expected, state)
    if best.problems:
        raise InputError(f"The weights in {path} do not fit the model: {best.report()}.")
    # Files from before PyTorch 0.4.1 have no num_batches_tracked; the module's own value stays.
    module.load_state_dict({**expected, **best.state})


def first_that_fits(state: State, modules: Iterable[tuple[str, nn.Module]]) -> str | None:
    """The name of the first module that the weights fit, whatever device it is on."""
    return next((name for name, module in modules if not _best_fit(module.state_dict(), state).problems), None)


def read_configuration(path: str | Path) -> dict[str, Any] | None:
    """How the weights in a file were trained, by `smoothcert train`: `arch`, `options`, `sigma`, …; None elsewhere."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(CONFIGURATION)
        configuration = None if text is None else json.loads(text)
    except (safetensors.SafetensorError, OSError, ValueError, RecursionError):
        return None
    if not isinstance(configuration, dict) or not isinstance(configuration.get("arch"), str):
        return None
    return configuration if isinstance(configuration.get("options"), dict) else None


def fits(builder: Callable[..., nn.Module], options: dict[str, Any], path: Path) -> bool:
    """Has the network no more numbers than the file bytes, and about as many tensors? Found without making room for
    them, and no further than the file goes."""
    registered, thread = count(1), get_ident()

    def stop(module: nn.Module, name: str, parameter: Any) -> None:
        if get_ident() == thread and next(registered) > most:
            raise OverflowError

    with safetensors.safe_open(path, framework="pt") as file:
        most = 100 + 4 * len(file.keys())
    watch = nn.modules.module.register_module_parameter_registration_hook(stop)
    try:
        with torch.device("meta"):
            return sum(p.numel() for p in builder(**options).parameters()) <= path.stat().st_size
    except InputError:
        raise
    except Exception:  # options of another type, or beyond what a shape can be, or more layers than weights
        return False
    finally:
        watch.remove()


def read_weights(path: Path) -> State:
    """The state dict in a file, under the names in the file."""
    if not path.is_file():
        raise InputError(f"The weights file {path} does not exist: check the path.")
    try:
        if path.suffix == ".safetensors":
            state: State | None = safetensors.torch.load_file(path)
        else:
            with open_torch_file(path) as file:
                found = _state_dict(file.content)
                state = None if found is None else file.tensors(found)
    except InputError:
        raise
    except pickle.UnpicklingError as error:
        raise InputError(
            f"The weights file {path} was refused because it holds more than tensors and plain values, "
            "and nothing in it was executed: save the model's state_dict() alone."
        ) from error
    except OverflowError as error:
        raise InputError(
            f"The weights file {path} takes more steps to read than weights do: save the model's state_dict() alone."
        ) from error
    except Exception as error:  # on a damaged or foreign file parsers raise whatever they stumble on
        raise InputError(
            f"The weights file {path} is cut off or is no checkpoint: "
            "give a file that torch.save wrote, or .safetensors."
        ) from error
    if not state:
        raise InputError(
            f"The weights file {path} holds no state dict: save the model's state_dict(), "
            "alone or as the entry 'state_dict'."
        )
    if len(state) > _MOST:
        raise InputError(f"The weights file {path} holds {len(state):,} weights, and {_MOST:,} are the most.")
    return state


def _state_dict(content: Any) -> dict[str, Strided] | None:
    """The names and tensors of a checkpoint, alone or as one of its entries."""
    known = content if isinstance(content, dict) else {}
    state = next((known[entry] for entry in _ENTRIES if isinstance(known.get(entry), dict)), known)
    weights = all(isinstance(name, str) and isinstance(value, Strided) for name, value in state.items())
    return state if weights and len(state) else None


def _best_fit(expected: State, state: State) -> _Fit:
    """Under the names that fit best."""
    return min((_Fit(expected, renamed) for renamed in _namings(state)), key=lambda fit: len(fit.problems))


def _namings(state: State) -> list[State]:
    """The state dict as saved, without DataParallel's `module.`, and as the second part of a Sequential."""
    bare = {re.sub(r"(^|\.)module\.", r"\1", key): value for key, value in state.items()}
    return [state, bare, {f"1.{key}": value for key, value in bare.items()}]


class _Fit:
    """What of a state dict the module lacks, does not know, or has in another shape."""

    def __init__(self, expected: State, state: State) -> None:
        self.state = {k: v for k, v in state.items() if k in expected or not _is_counter(k)}
        self.missing = [k for k in expected if k not in state and not _is_counter(k)]
        self.unexpected = [k for k in self.state if k not in expected]
        self.reshaped = [
            f"{k} {_shape(v)} instead of {_shape(expected[k])}"
            for k, v in self.state.items()
            if k in expected and v.shape != expected[k].shape
        ]

    @property
    def problems(self) -> list[str]:
        return self.missing + self.unexpected + self.reshaped

    def report(self) -> str:
        kinds = {"missing": self.missing, "unexpected": self.unexpected, "of another shape": self.reshaped}
        return "; ".join(f"{kind}: {_first_five(keys)}" for kind, keys in kinds.items() if keys)


def _is_counter(key: str) -> bool:
    """Batch normalisation counts its training batches, and an average of weights what it is of; neither plays a part in
    evaluation."""
    return key.endswith("num_batches_tracked") or key == "n_averaged"


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "scalar"


def _first_five(keys: list[str]) -> str:
    more = f" and {len(keys) - 5} more" if len(keys) > 5 else ""
    return ", ".join(keys[:5]) + more
