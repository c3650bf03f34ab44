"""What runs on each machine: the model, placed once, and chunks of blocks drawn with it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.modules import Model
from smoothcert.sampling.batches import choose_batch
from smoothcert.sampling.blocks import Block, Input, Votes
from smoothcert.sampling.engines import open_engine
from smoothcert.sampling.executor import Executor, Job
from smoothcert.sampling.identity import Identity
from smoothcert.sampling.separation import fault


@dataclass(frozen=True)
class Common:
    """What votes depend on besides their blocks: workers that have it in common cast equal votes."""

    engine: Identity
    model: str
    versions: str


class Worker:
    """A process that draws whatever blocks it is given, and remembers nothing of them."""

    def open(self, fetch: Callable[[], Model], engine: str, *, path: list[str], cpus: int, on_gpu: bool) -> Common:
        """Takes the model in; called once, first. Its code is looked for where the driver looks, too."""
        sys.path.extend(folder for folder in path if folder not in sys.path)
        torch.set_num_threads(cpus)
        try:
            model = fetch()
            if isinstance(model, torch.nn.Module) and on_gpu:
                model = model.to("cuda")
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise InputError(
                f"the worker on {platform.node()} cannot load the model ({reason}): what it is made of must be "
                f"installed there too."
            ) from error
        self.engine = open_engine(model, engine)
        versions = f"smoothcert {version('smoothcert')}, numpy {np.__version__}"
        return Common(self.engine.identity, self.engine.fingerprint, versions)

    def choose_batch(self, x: NDArray[np.float32]) -> int:
        return choose_batch("auto", self.engine, x)

    def fault(self, source: Input, job: Job) -> str | None:
        return fault(self.engine, source, job)

    def draw(self, blocks: list[Block], inputs: dict[int, Input], job: Job) -> list[Votes]:
        """The votes of the blocks, in order."""
        return list(Executor(self.engine, inputs.__getitem__, job).run(blocks))
