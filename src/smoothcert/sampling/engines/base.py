"""What the sampler asks of an engine."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import torch

from smoothcert.sampling.identity import Identity


class Engine(Protocol):
    """Scores (N, c) or labels (N,) of a batch (N, *shape) of float32 on `device`.

    Calls happen inside `ready()`, which puts the model into the state it is certified in and back; up to `lanes` at
    once, from as many threads.
    """

    @property
    def device(self) -> torch.device: ...

    @property
    def lanes(self) -> int: ...

    @property
    def identity(self) -> Identity: ...

    @property
    def fingerprint(self) -> str:
        """A hash of the model's weights, or a name where there are none to hash: what may change while it is used."""

    def ready(self) -> AbstractContextManager[object]: ...

    def __call__(self, batch: torch.Tensor) -> torch.Tensor: ...
