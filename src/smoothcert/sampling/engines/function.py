"""Any callable from a NumPy batch to scores or labels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any

import numpy as np
import torch

from smoothcert.errors import InputError
from smoothcert.modules import no_exit
from smoothcert.sampling.identity import Identity


class FunctionEngine:
    """Calls the function on a float32 array (N, *shape), once at a time; its weights cannot be hashed, so its name
    stands for them."""

    device = torch.device("cpu")
    lanes = 1

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self._turn = function, Lock()
        owner = function if hasattr(function, "__qualname__") else type(function)
        self.fingerprint = f"{owner.__module__}.{owner.__qualname__}"
        self.identity = Identity("callable", f"numpy {np.__version__}", "cpu")

    def ready(self) -> AbstractContextManager[None]:
        return nullcontext()

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        with self._turn, no_exit():
            output = np.asarray(self.function(batch.numpy()))
        if output.dtype.kind not in "iuf":
            raise InputError(
                f"the model returned values of type {output.dtype}: it must return numeric scores (N, classes) or "
                f"integer labels (N,)."
            )
        if output.dtype.kind == "u":
            output = output.astype(np.int64)
        return torch.from_numpy(np.ascontiguousarray(output))
