"""What the engines for torch modules share."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock, Semaphore
from typing import Any, ClassVar

import torch

from smoothcert.description import Description
from smoothcert.errors import InputError
from smoothcert.modules import device_of, evaluated, no_exit, one_thread
from smoothcert.sampling.engines.agreement import COARSE_TOLERANCE, TOLERANCE, agree
from smoothcert.sampling.identity import Identity

Network = Callable[[torch.Tensor], torch.Tensor]
BF16, TF32 = "bf16", "tf32"
COARSE = (BF16, TF32)
"""Options that round to less than float32: another classifier, if a close one."""


def shortened(device: str) -> str:
    """Where torch may shorten float32 on such a device: its settings for convolutions and matrix products.

    >>> shortened("cuda")
    ' with tf32 convolutions'
    """
    backends: Any = torch.backends
    if device == "cuda":
        kinds = {"convolutions": backends.cudnn.conv, "products": backends.cuda.matmul}
    else:
        kinds = {"convolutions": backends.mkldnn.conv, "products": backends.mkldnn.matmul} if device == "cpu" else {}
    short = {name: kind.fp32_precision for name, kind in kinds.items() if kind.fp32_precision not in ("none", "ieee")}
    return " with " + " and ".join(f"{bits} {name}" for name, bits in short.items()) if short else ""


@contextmanager
def tf32() -> Iterator[None]:
    """Convolutions and matrix products on CUDA in TF32, float32 with 10 bits of its mantissa; then as it was."""
    backends: Any = torch.backends
    kinds = (backends.cudnn.conv, backends.cuda.matmul)
    before = [kind.fp32_precision for kind in kinds]
    try:
        for kind in kinds:
            kind.fp32_precision = TF32
        yield
    finally:
        for kind, precision in zip(kinds, before, strict=True):
            kind.fp32_precision = precision


def state_of(module: torch.nn.Module) -> str:
    """A hash of the code, the tensors and the values that a module and its parts hold, in evaluation mode.

    It tells whether what was made of the module is still what the module is, and compares within one process alone.
    """
    description = Description()
    try:
        description.add(module)
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"whether the model changes cannot be seen ({reason}): use engine torch.") from error
    return description.hexdigest()


class ModuleEngine(ABC):
    """A copy of a torch module in evaluation mode, without gradients; the module itself is left as it is.

    The copy shares the module's tensors, and is made anew when the first of those who are `ready` at once comes in. A
    subclass says in `build` what runs in its place: made for the first batch, and again for those who come in when the
    module has changed since, by its weights, its code or any value that it holds. `bf16` is torch's autocast, `tf32` a
    setting of CUDA.
    """

    family: ClassVar[str]
    options_known: ClassVar[tuple[str, ...]]

    def __init__(self, module: torch.nn.Module, options: tuple[str, ...] = ()) -> None:
        for option in options:
            if option not in self.options_known:
                known = ", ".join(self.options_known) or "none"
                raise InputError(f"engine {self.family!r} has no option {option!r}: its options are {known}.")
        self.module, self.options = module, options
        self.device = device_of(module)
        if TF32 in options and self.device.type != "cuda":
            raise InputError(f"engine option {TF32!r} is for CUDA, and the model is on {self.device}: leave it out.")
        self.lanes = torch.get_num_threads() if self.device.type == "cpu" and self.one_thread_each() else 1
        self._lock, self._users = Lock(), 0
        self._turns = Semaphore(self.lanes)  # what a module keeps while it runs is no other thread's
        self._own = module
        self._network: Network | None = None
        self._state, self._made_before = "", False

    def versions(self) -> str:
        return f"torch {torch.__version__}"

    @property
    def identity(self) -> Identity:
        """As torch is set now."""
        name = "+".join([self.family, *self.options])
        return Identity(name, self.versions(), self.device.type, self.precision())

    def precision(self) -> str:
        """What the arithmetic rounds to: bf16 where torch casts, else the types of the weights, and where torch may
        shorten float32."""
        if BF16 in self.options:
            return BF16
        tensors = (*self.module.parameters(), *self.module.buffers())
        types = sorted({str(t.dtype).removeprefix("torch.") for t in tensors if t.is_floating_point()}) or ["float32"]
        with self._arithmetic():
            return "+".join(types) + (shortened(self.device.type) if "float32" in types else "")

    def _arithmetic(self) -> AbstractContextManager[object]:
        """torch, told what to round to."""
        if BF16 in self.options:
            return torch.autocast(self.device.type, torch.bfloat16)
        return tf32() if TF32 in self.options else nullcontext()

    def one_thread_each(self) -> bool:
        """Is it safe, and wanted, to run several batches at once on the CPU, each on one thread?"""
        return False

    def runs_a_copy(self) -> bool:
        """Does it run what `build` has made of `self._own`, and not that itself?"""
        return True

    @abstractmethod
    def build(self, batch: torch.Tensor) -> Network:
        """What runs batches of this shape in place of `self._own`."""

    @property
    def fingerprint(self) -> str:
        """sha256 of the structure, and of name, type, shape and bytes of every parameter and buffer."""
        digest = hashlib.sha256(repr(self.module).encode())
        for name, tensor in (*self.module.named_parameters(), *self.module.named_buffers()):
            value = tensor.detach().cpu().contiguous()
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    @contextmanager
    def ready(self) -> Iterator[None]:
        with self._lock:
            if self._users == 0:
                self._own = evaluated(self.module)
                state = state_of(self._own) if self.runs_a_copy() else ""
                if not state or state != self._state:
                    self._network, self._state = None, state
            self._users += 1
        try:
            with one_thread() if self.lanes > 1 else nullcontext():
                yield
        finally:
            with self._lock:
                self._users -= 1

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode(), self._arithmetic(), no_exit():
            with self._lock:
                if self._network is None:
                    network = self.build(batch)
                    if self._made_before and self.runs_a_copy():
                        self._require_agreement(network, batch)
                    self._network, self._made_before = network, True
                network = self._network
            with self._turns:
                output = network(batch)
        if not isinstance(output, torch.Tensor):
            raise InputError(
                f"the model returned {type(output).__name__}, not a tensor: wrap it so that it returns the scores."
            )
        if output.layout is not torch.strided:
            raise InputError(f"the model returned a tensor of layout {output.layout}: return its to_dense().")
        return output

    def _require_agreement(self, network: Network, batch: torch.Tensor) -> None:
        """Refuses what was made of a changed module, and computes something else: the engine was chosen for another."""
        tolerance = COARSE_TOLERANCE if any(option in COARSE for option in self.options) else TOLERANCE
        if not agree(network(batch.clone()), self._own(batch.clone()), tolerance):  # some write into it
            raise InputError(
                f"engine {self.identity.engine} computes something else than the model, which has changed since the "
                f"engine was chosen: use engine torch."
            )
