"""Eager PyTorch on the model's own device."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from smoothcert.errors import InputError


class TorchEngine:
    """A torch module in evaluation mode, without gradients; both are restored afterwards."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        tensors = [*module.parameters(), *module.buffers()]
        self.device = tensors[0].device if tensors else torch.device("cpu")
        self.identity = f"torch {torch.__version__} eager on {self.device.type}"

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
        self.module.eval()
        try:
            with torch.inference_mode():
                yield
        finally:
            for m in training:
                m.training = True

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        output = self.module(batch)
        if not isinstance(output, torch.Tensor):
            raise InputError(
                f"the model returned {type(output).__name__}, not a tensor: wrap it so that it returns the scores."
            )
        return output
