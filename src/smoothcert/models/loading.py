"""A model as the command line names it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from smoothcert.errors import InputError
from smoothcert.imports import import_object
from smoothcert.models.checkpoints import first_that_fits, fit_weights, fits, read_configuration, read_weights
from smoothcert.models.registry import build, names

logger = logging.getLogger(__name__)

SHIPPED_WEIGHTS = {name: Path(__file__).with_name(f"{name}.safetensors") for name in ("digits_cnn", "digits_lipschitz")}
"""Weights of the networks for digits; docs/training.md has the commands that made them."""


def load_model(
    spec: str, *, weights: str | Path | None = None, num_classes: int | None = None, device: str = "auto"
) -> torch.nn.Module | Callable[..., Any] | Path:
    """`package.module:factory`, called without arguments, or a built-in architecture; with weights where given.

    Weights from `smoothcert train` bring the options of the architecture with them. A module is moved to the
    device; `auto` is CUDA where there is one, else Apple's MPS, else the CPU. An .onnx file stays a path, for
    ONNX Runtime to open.
    """
    weights = None if weights is None else Path(weights)
    if spec.endswith(".onnx"):
        if weights is not None:
            raise InputError("an .onnx file holds its own weights: leave out `weights`.")
        return Path(spec)
    if ":" in spec:
        factory = import_object(spec)
        try:
            model = factory() if not isinstance(factory, torch.nn.Module) else factory
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise InputError(f"the factory {spec} raised {reason}: call it by hand to find out why.") from error
    else:
        options = trained_options(spec, weights)
        model = build(spec, **(options if num_classes is None else {**options, "num_classes": num_classes}))
    if not callable(model):
        raise InputError(f"{spec} returned {type(model).__name__}: it must return a torch module or a callable.")
    weights = weights or SHIPPED_WEIGHTS.get(spec)
    if weights is not None:
        if not isinstance(model, torch.nn.Module):
            raise InputError(f"{spec} is not a torch module, so `weights` has nothing to load into: leave it out.")
        _load(spec, model, weights)
    elif ":" not in spec:
        logger.warning("%s has random weights: none were given.", spec)
    return model.to(choose_device(device)) if isinstance(model, torch.nn.Module) else model


def _load(spec: str, model: torch.nn.Module, weights: Path) -> None:
    """Weights that fit another built-in architecture are called so."""
    state = read_weights(weights)
    try:
        fit_weights(model, state, weights)
    except InputError:
        other = first_that_fits(state, _blueprints())
        if other is None or other == spec:
            raise
        raise InputError(f"the weights in {weights} are those of {other}, not of {spec}: name that one.") from None


def _blueprints() -> Iterator[tuple[str, torch.nn.Module]]:
    """The built-in architectures, without room for their weights."""
    for name in names():
        with torch.device("meta"):
            yield name, build(name)


def choose_device(name: str) -> torch.device:
    """The device of that name; `auto` is CUDA where there is one, else Apple's MPS, else the CPU."""
    if name == "auto":
        cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
        name = "cuda" if cuda else "mps" if mps else "cpu"
    try:
        return torch.empty(0, device=torch.device(name)).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device {name!r} cannot be used ({reason}): choose another `device`.") from None


def trained_options(spec: str, weights: Path | None) -> dict[str, Any]:
    """The options of a built-in architecture that its weights bring with them."""
    configuration = None if weights is None else read_configuration(weights)
    if weights is None or configuration is None:
        return {}
    if configuration["arch"] != spec:
        raise InputError(
            f"the weights in {weights} are those of {configuration['arch']}, not of {spec}: name that one."
        )
    options: dict[str, Any] = configuration["options"]
    if not fits(partial(build, spec), options, weights):
        raise InputError(f"the options {options} in {weights} do not describe what the file holds: train it again.")
    return options
