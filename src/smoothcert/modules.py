"""Models as callers bring them, and what is done with those that are torch modules."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager, suppress
from pathlib import Path
from threading import Lock, Thread
from types import FunctionType
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from smoothcert.description import Description, is_installed, put_on
from smoothcert.errors import InputError, RunError

Model = torch.nn.Module | Callable[..., Any] | Path
"""A torch module, any callable from a NumPy batch to scores or labels, or the path of an .onnx file."""


def require_module(model: Any, why: str) -> torch.nn.Module:
    """The model, where it is a torch module; else `why` one is needed is said."""
    if not isinstance(model, torch.nn.Module):
        raise InputError(why)
    return model


def device_of(module: torch.nn.Module) -> torch.device:
    """Where the module's weights are."""
    return next((t.device for t in (*module.parameters(), *module.buffers())), torch.device("cpu"))


def as_weights(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """x where the module's weights are, and in their floating type."""
    like = (t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point())
    return x.to(next(like, torch.empty(0)))


def batch_statistics(module: torch.nn.Module) -> str | None:
    """The name of the first batch norm that takes its statistics from the batch, having none of its own."""
    norms = ((name, m) for name, m in evaluated(module).named_modules() if isinstance(m, _BatchNorm))
    return next((name for name, m in norms if m.running_mean is None), None)


def held_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of the module by its name: parameters, buffers, and those that are plain attributes."""
    for prefix, part in module.named_modules():
        for name, value in {**part._parameters, **part._buffers, **vars(part)}.items():
            if isinstance(value, torch.Tensor):
                yield f"{prefix}.{name}".lstrip("."), value


def evaluated(module: torch.nn.Module) -> torch.nn.Module:
    """A copy in evaluation mode that shares the module's tensors; the module itself is never switched.

    One that cannot be copied, or not with all that Python runs around it, is taken as it is where it is in evaluation
    mode already, and refused where it is not; so is one whose copy still works with parts of it. One that stays in
    training mode is refused, too: running it would change tensors that are the module's.
    """
    training = any(getattr(part, "training", False) for part in _with_modes(module))
    if any(is_lazy(tensor) for _, tensor in held_tensors(module)):
        raise InputError("the model has weights that are not there before it has run once: run it on an input first.")
    try:
        lost = next((type(part).__name__ for part in module.modules() if put_on(part)), None)
        if lost is not None:
            raise InputError(f"its copy would lose the hooks, the forward or the class that its {lost} was given")
        copies: dict[int, Any] = {id(tensor): tensor for _, tensor in held_tensors(module)}
        copied = copy.deepcopy(module, copies)
        if _works_with(copied, module, copies):
            raise InputError("its copy still calls it, by a function or a part that is not copied")
        copied.eval()
    except Exception as error:
        if not training:
            return module
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"the model is in training mode and cannot be copied ({reason}): call its eval() first."
        ) from error
    stays = next((type(part).__name__ for part in _with_modes(copied) if getattr(part, "training", False)), None)
    if stays is not None:
        raise InputError(
            f"the model's {stays} is in training mode even after eval(): let its train() hand the mode on to "
            f"torch.nn.Module.train()."
        )
    return copied


def _with_modes(module: torch.nn.Module) -> list[torch.nn.Module]:
    """The parts that have modes: an exported program is one function, and refused where it is that of training."""
    exported = [part for part in module.modules() if isinstance(part, torch.fx.GraphModule) and _is_exported(part)]
    for node in (node for program in exported for node in program.graph.nodes):
        schema = getattr(node.target, "_schema", None)
        names = () if schema is None else (argument.name for argument in schema.arguments)
        given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
        if any(given.get(name) is True for name in ("train", "training")):
            raise InputError(f"the model was exported in training mode ({node.target}): export it after its eval().")
    inside = {part for program in exported for part in program.modules()}
    return [part for part in module.modules() if part not in inside]


def _is_exported(part: torch.fx.GraphModule) -> bool:
    """Is it the module of a `torch.export.ExportedProgram`?"""
    return any(kind.__module__.startswith("torch.export") for kind in type(part).__mro__)


def _works_with(copied: torch.nn.Module, module: torch.nn.Module, copies: dict[int, Any]) -> bool:
    """May the copy run parts of the module, or read and write what it holds? Functions are not copied with what they
    close over or name. `copies` has what was made of each object, by its id."""
    own = (vars(part).get("forward") for part in _with_modes(copied))
    if any(isinstance(forward, FunctionType) and forward.__closure__ and is_installed(forward) for forward in own):
        return True  # a decorator's: what it closes over is not looked at
    description = Description(known=[tensor for _, tensor in held_tensors(module)])
    description.add(copied)
    moved = {number for number, made in copies.items() if number not in (id(made), id(copies))}
    return any(map(description.has_met, moved | set(map(id, module.modules()))))


class no_exit(ContextDecorator):
    """A model that ends the process, or raises what no `except Exception` takes for an error, is at fault, and its run
    has not ended well. Ctrl-C is not its doing."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, end: BaseException | None, *_: object) -> None:
        if end is None or isinstance(end, Exception | KeyboardInterrupt):
            return
        did = f"called sys.exit({end.code!r})" if isinstance(end, SystemExit) else f"raised {type(end).__name__}"
        raise RunError(f"the model {did}: take that out of it, and start again.") from end


def warm_up(module: torch.nn.Module, x: torch.Tensor) -> None:
    """Runs a module once, without compiling it: what it keeps of a first call, in itself or in a function's cache, is
    there whoever has called it before, and no export leaves tensors without values there."""
    with (
        suppress(Exception),
        no_exit(),
        torch.inference_mode(False),
        torch.no_grad(),
        torch.random.fork_rng(devices=[]),
        torch.compiler.set_stance("force_eager"),
    ):
        module(x)


class _OneThread:
    """How many are inside `one_thread`, and what they found."""

    lock, inside, before = Lock(), 0, 1


def _threads_of_a_new_thread() -> int:
    """As torch is set: a thread that was there before may remember how it was while somebody was inside."""
    found: list[int] = []
    new = Thread(target=lambda: found.append(torch.get_num_threads()))
    new.start()
    new.join()
    return found[0]


@contextmanager
def one_thread() -> Iterator[None]:
    """torch with one thread a call; as it was once the last of those inside has left."""
    with _OneThread.lock:
        if _OneThread.inside == 0:
            _OneThread.before = _threads_of_a_new_thread()
        _OneThread.inside += 1
    torch.set_num_threads(1)
    try:
        yield
    finally:
        with _OneThread.lock:
            _OneThread.inside -= 1
            torch.set_num_threads(_OneThread.before)
