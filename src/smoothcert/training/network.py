"""The network that is trained: built or given, parts of it frozen, in a precision that it stands."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.data import Dataset
from smoothcert.errors import InputError
from smoothcert.models import build, load_model, load_weights
from smoothcert.models.loading import trained_options
from smoothcert.modules import device_of, require_module


def first_network(
    arch: str, data: Dataset, given: Mapping[str, Any], weights: Path | None, seed: int
) -> tuple[nn.Module, dict[str, Any]]:
    """A built-in architecture or what a factory returns, with its first weights, and the options it was built with."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if ":" in arch or arch.endswith(".onnx"):
            if given:
                raise InputError(f"a factory is called without arguments: leave `option` out, or set it in {arch}.")
            loaded = load_model(arch, weights=weights, device="cpu")
            return require_module(loaded, f"{arch} is no torch module, and only those can be trained."), {}
        options = {**_decided(arch, data), **trained_options(arch, weights), **given}
        model = build(arch, **options)
    if weights is not None:
        load_weights(model, weights)
    return model, options


def _decided(arch: str, data: Dataset) -> dict[str, Any]:
    """The options of a built-in architecture that the data decide."""
    classes = data.classes or range(1 + max(data[row].label for row in range(len(data))))
    options: dict[str, Any] = {"num_classes": len(classes)}
    return {**options, "input_shape": list(data.shape)} if arch == "liresnet" else options


def count_scores(model: nn.Module, arch: str, shape: tuple[int, ...]) -> int:
    """How many classes the network gives scores to, found by an input of that shape."""
    try:
        with torch.no_grad():
            scores = model.eval()(torch.zeros(2, *shape, device=device_of(model)))
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{arch} does not take inputs of shape {shape} ({reason}): choose another `arch`.") from None
    if not isinstance(scores, Tensor) or scores.ndim != 2 or scores.shape[1] < 2:
        raise InputError(f"{arch} returns no scores (inputs, classes): wrap it in a module that does.")
    return int(scores.shape[1])


def fingerprint(model: nn.Module) -> str:
    """A hash of all its weights, under their names."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def freeze(model: nn.Module, patterns: str) -> list[nn.Module]:
    """Keeps the parameters whose names, or whose modules' names, match one of the patterns; returns these modules.

    A frozen module is to compute as in evaluation: its batch normalisation learns no means either.
    """
    frozen: list[nn.Module] = []
    for pattern in filter(None, map(str.strip, patterns.split(","))):
        modules = [module for name, module in model.named_modules() if fnmatchcase(name, pattern)]
        parameters = [parameter for name, parameter in model.named_parameters() if fnmatchcase(name, pattern)]
        if not modules and not parameters:
            names = ", ".join(name for name, _ in model.named_children())
            raise InputError(f"`freeze` {pattern!r} matches no part of the network: its parts are {names}.")
        for part in (*modules, *parameters):
            part.requires_grad_(False)
        frozen += modules
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError("`freeze` leaves nothing to train: freeze less.")
    return frozen


def channels_last(model: nn.Module) -> nn.Module:
    """The network with the weights of its convolutions laid out as CPUs and tensor cores want them."""
    for parameter in model.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return model


def choose_precision(asked: str, model: nn.Module, shape: tuple[int, ...]) -> str:
    """bfloat16 where the hardware multiplies it, which halves the time of a step, and multiplies it right.

    On CPUs oneDNN computes some strided convolutions wrongly in bfloat16 (PyTorch issues 163347 and 169688).
    """
    if asked not in ("auto", "bf16", "fp32"):
        raise InputError(f"there is no precision {asked!r}: choose auto, bf16 or fp32.")
    device = device_of(model)
    native = {"cuda": torch.cuda.is_bf16_supported, "cpu": getattr(torch.cpu, "_is_avx512_bf16_supported", bool)}
    if asked == "fp32" or (asked == "auto" and not native.get(device.type, bool)()):
        return "fp32"
    x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)).to(device)
    with torch.no_grad():
        exact, rounded = model.eval()(x), run(model, x, "bf16")
    if float((rounded - exact).norm()) <= 0.25 * float(exact.norm()):
        return "bf16"
    if asked == "auto":
        return "fp32"
    raise InputError("the scores of this network are wrong in bf16 on this device: use the `precision` fp32.")


def run(model: nn.Module, x: Tensor, precision: str) -> Tensor:
    """What the network returns in float32, its convolutions and products computed in the precision."""
    x = x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x
    with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
        out: Tensor = model(x)
    return out.float()
