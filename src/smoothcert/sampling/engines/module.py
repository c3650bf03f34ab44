"""What the engines for torch modules share."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import ClassVar

import torch

from smoothcert.errors import InputError

Network = Callable[[torch.Tensor], torch.Tensor]
SINGLE_THREAD, BF16 = "single-thread", "bf16"


class ModuleEngine(ABC):
    """A torch module in evaluation mode, without gradients; both are restored afterwards.

    A subclass says in `build` what runs in place of the module: made for the first batch, and made again when the
    module's weights have changed since. `single-thread` keeps the CPU to one thread, `bf16` is torch's autocast.
    """

    family: ClassVar[str]
    options_known: ClassVar[tuple[str, ...]]

    def __init__(self, module: torch.nn.Module, options: tuple[str, ...] = ()) -> None:
        for option in options:
            if option not in self.options_known:
                raise InputError(
                    f"engine {self.family!r} has no option {option!r}: choose from {', '.join(self.options_known)}."
                )
        self.module, self.options = module, options
        tensors = [*module.parameters(), *module.buffers()]
        self.device = tensors[0].device if tensors else torch.device("cpu")
        self.identity = f"{'+'.join([self.family, *options])} ({self.versions()}) on {self.device.type}"
        self._network: Network | None = None
        self._built_from = ""

    def versions(self) -> str:
        return f"torch {torch.__version__}"

    @abstractmethod
    def build(self, batch: torch.Tensor) -> Network:
        """What runs batches of this shape."""

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
        training = [m for m in self.module.modules() if m.training]
        threads = torch.get_num_threads()
        bf16 = torch.autocast(self.device.type, torch.bfloat16) if BF16 in self.options else nullcontext()
        self.module.eval()
        if self._network not in (None, self.module) and self._built_from != self.fingerprint:
            self._network = None
        try:
            if SINGLE_THREAD in self.options:
                torch.set_num_threads(1)
            with torch.inference_mode(), bf16:
                yield
        finally:
            torch.set_num_threads(threads)
            for m in training:
                m.training = True

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        if self._network is None:
            self._network = self.build(batch)
            self._built_from = "" if self._network is self.module else self.fingerprint
        output = self._network(batch)
        if not isinstance(output, torch.Tensor):
            raise InputError(
                f"the model returned {type(output).__name__}, not a tensor: wrap it so that it returns the scores."
            )
        return output
