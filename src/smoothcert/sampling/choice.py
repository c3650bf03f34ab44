"""Which engine runs a model, and with how many rows a batch: the fastest that works, measured on the first input."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.modules import evaluated
from smoothcert.sampling.batches import Patience, choose_batch, fastest_batch, rate, require_room, sizes_for
from smoothcert.sampling.blocks import Input
from smoothcert.sampling.engines import INT8, Engine, Engines, HalvingEngine
from smoothcert.sampling.engines.agreement import COARSE_TOLERANCE, TOLERANCE, agree
from smoothcert.sampling.engines.int8 import Int8Engine
from smoothcert.sampling.engines.module import COARSE, state_of
from smoothcert.sampling.engines.onnx import exported
from smoothcert.sampling.engines.quantising import RECIPES, Quantised, make
from smoothcert.sampling.executor import Executor, Job
from smoothcert.sampling.identity import Identity
from smoothcert.sampling.separation import fault

logger = logging.getLogger(__name__)
FOLDED = ("torch+folded", "torch+folded+channels-last")
UNMEASURED = "engine torch: the run is too short to measure others"
FEW = 20
"""Batches of which two, to measure one, take a tenth."""

FASTER = 1.5
"""Times as fast as the fastest, from which on `onnx+int8` is worth a word."""

JUDGED = 100
"""Rows at least, by which an engine is judged that rounds to less than float32."""

CLOSE, TURNS = 1.25, 2
"""Engines that are so nearly as fast as the fastest take so many more turns."""


@dataclass(frozen=True)
class ThisProcess:
    """A `Machine`: an engine here, the rows it gets at a time, and a sentence that says why."""

    engine: Engine
    batch: int
    reason: str

    @property
    def identity(self) -> Identity:
        return self.engine.identity

    def executor(self, inputs: Callable[[int], Input], job: Job) -> Executor:
        return Executor(self.engine, inputs, job)

    def fault(self, source: Input, job: Job) -> str | None:
        return fault(self.engine, source, job)

    def __enter__(self) -> ThisProcess:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""


def choose_engine(
    engines: Engines,
    name: str,
    batch: int | str,
    x: NDArray[np.float32],
    *,
    sigma: float,
    draws: int,
    exact: bool = False,
) -> ThisProcess:
    """The engine and the batch that are asked for, or for "auto" the fastest for so many draws at inputs like x.

    "auto" measures eager PyTorch, then on the CPU ONNX Runtime, and its own variants, each where its set-up can be
    expected to fit into what choosing may take: a sixth of the run as estimated so far, and a minute at most. What
    cannot be built, or disagrees with eager PyTorch on noisy copies of x, is passed over. On CUDA arithmetic coarser
    than float32 is tried as well, unless it has to be `exact`. Integers are never taken; where there is time to see
    that they would be far faster, it is told.
    """
    patience = Patience(draws)
    if not isinstance(engines.model, torch.nn.Module):
        engine = engines.open()
        return here(engines, name, choose_batch(batch, engine, x, patience), f"engine {engine.identity}")
    contest = _Contest(engines, x, batch, sigma, patience, exact)
    if name == "auto":
        return contest.winner()
    # The compiler takes a minute for each batch shape: eager PyTorch finds the shape.
    rows = choose_batch(batch, engines.open("torch" if name.startswith("compile") else name), x, patience)
    if name not in ("torch", INT8) and not _coarse(name):
        contest.require(name, rows)
    return here(engines, name, rows, f"engine {name}")


def _coarse(name: str) -> bool:
    return any(option in name.split("+") for option in COARSE)


def here(engines: Engines, name: str, batch: int, reason: str) -> ThisProcess:
    """The engine of that name in this process; on CUDA guarded against memory that is taken away later."""
    engine = engines.open(name)
    return ThisProcess(HalvingEngine(engine) if engine.device.type == "cuda" else engine, batch, reason)


class _Entry(NamedTuple):
    """How fast an engine was, at the batch that suits it."""

    rate: float
    batch: int


class _Contest:
    """Engines for one module, each timed at its own batch of inputs like x."""

    def __init__(
        self,
        engines: Engines,
        x: NDArray[np.float32],
        batch: int | str,
        sigma: float,
        patience: Patience,
        exact: bool,
    ) -> None:
        self.engines, self.x, self.sigma, self.patience, self.exact = engines, x, sigma, patience, exact
        self.sizes = (batch,) if isinstance(batch, int) else sizes_for(patience.draws)
        self.entries: dict[str, _Entry] = {}
        self.failures: dict[str, str] = {}

    @property
    def best(self) -> str:
        return max(self.entries, key=self.entries.__getitem__)

    def winner(self) -> ThisProcess:
        """The fastest of those for which there is time."""
        eager = self.engines.open()
        require_room(self.sizes[0], eager, self.x)
        if self.patience.draws < FEW * self.sizes[0] and len(self.sizes) == 1:
            return here(self.engines, "torch", self.sizes[0], UNMEASURED)
        self.entries["torch"] = self._measured(eager)
        tried = [name for name in self._candidates(eager) if self._try(name)]
        if not tried:
            return here(self.engines, "torch", self.entries["torch"].batch, UNMEASURED)
        self._take_turns()
        best, name = self.entries[self.best], self.best
        failed = "".join(f"; {name} was passed over ({why})" for name, why in self.failures.items())
        reason = f"engine {name}: {best.rate:,.0f} draws a second in batches of {best.batch}{failed}"
        reason += self._in_integers()
        return here(self.engines, name, best.batch, reason)

    def _candidates(self, eager: Engine) -> Iterator[str]:
        """Those that may be faster than eager PyTorch, the likeliest first; on CUDA the fastest of them in coarser
        arithmetic, too."""
        if eager.device.type == "cpu":
            lanes = "" if torch.get_num_threads() == 1 else "+lanes"
            yield from ("onnx", *(f"{name}{lanes}" for name in FOLDED))
            return
        yield from (*reversed(FOLDED), "torch+channels-last")
        if eager.device.type == "cuda" and not self.exact:
            yield from [f"{self.best}+{option}" for option in reversed(COARSE)]

    def _in_integers(self) -> str:
        """How much faster a quantised network would be, where that is much and there is time to find out."""
        best, module = self.entries[self.best], self.engines.model
        assert isinstance(module, torch.nn.Module)
        if self.exact or "onnx" not in self.entries or 2 * self._set_up("onnx") > self.patience.left:
            return ""
        rows = self._noisy(self.sizes[0])
        try:
            made = make(exported(module, tuple(rows.shape)), [rows], RECIPES[0])
            engine = Int8Engine(module, Quantised(made, state_of(evaluated(module)), ""))
            with engine.ready():
                times = rate(engine, self.x, self.entries["onnx"].batch, self.patience) / best.rate
        except Exception:
            return ""
        return f"; {INT8} would be {times:.1f} times as fast, as a network of its own" if times >= FASTER else ""

    def _try(self, name: str) -> bool:
        """Enters the engine if there is time to build and to measure it; was there?"""
        expected = self._set_up(name) + 3 * self.entries["torch"].batch / self.entries["torch"].rate
        if expected > self.patience.left:
            return False
        if len(self.entries) + len(self.failures) == 1:
            logger.info("choosing an engine: %s", self._said("torch"))
        if self._works(name, self.entries["torch"].batch):
            self.entries[name] = self._measured(self.engines.open(name))
            logger.info("choosing an engine: %s", self._said(name))
        return True

    def _set_up(self, name: str) -> float:
        """Seconds that it takes to build an engine, as a rule: to import the exporter, and for each part."""
        assert isinstance(self.engines.model, torch.nn.Module)
        parts = sum(1 for _ in self.engines.model.modules())
        return 1.5 + parts / 100 if name == "onnx" else parts / 2000

    def _said(self, name: str) -> str:
        return f"{name} makes {self.entries[name].rate:,.0f} draws a second in batches of {self.entries[name].batch}"

    def _measured(self, engine: Engine) -> _Entry:
        batch, found = fastest_batch(engine, self.x, self.sizes, self.patience)
        return _Entry(found, batch)

    def _take_turns(self) -> None:
        """The fastest once more, in turns, so that all see the same machine."""
        close = [name for name, entry in self.entries.items() if CLOSE * entry.rate > self.entries[self.best].rate]
        for name in TURNS * close if len(close) > 1 else []:
            engine, entry = self.engines.open(name), self.entries[name]
            if 3 * entry.batch * engine.lanes / entry.rate <= self.patience.left:
                with engine.ready():
                    again = rate(engine, self.x, entry.batch, self.patience)
                self.entries[name] = max(entry, _Entry(again, entry.batch))

    def require(self, name: str, rows: int) -> None:
        """Refuses an engine that was asked for and cannot be built, or computes something else."""
        if not self._works(name, rows) and self._works("torch", rows):
            raise InputError(f"engine {name} cannot run this model ({self.failures[name]}): use engine torch.")

    def _works(self, name: str, rows: int) -> bool:
        """Does it answer so many noisy copies of x as eager PyTorch does?"""
        batch = self._noisy(max(rows, JUDGED) if _coarse(name) else rows)
        tolerance = COARSE_TOLERANCE if _coarse(name) else TOLERANCE
        try:
            output = self._run(name, batch.clone())  # some models write into it
            if name == "torch" or agree(output, self._run("torch", batch), tolerance):
                return True
            self.failures[name] = "its scores differ from those of eager PyTorch"
        except Exception as error:
            self.failures[name] = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        return False

    def _noisy(self, rows: int) -> torch.Tensor:
        try:
            noise = torch.randn((rows, *self.x.shape), generator=torch.Generator().manual_seed(0))
            return (torch.from_numpy(self.x) + self.sigma * noise).to(self.engines.open().device)
        except RuntimeError as error:  # torch has no type of its own for memory of the CPU
            reason = str(error).splitlines()[0]
            raise InputError(
                f"there is no memory for a batch of {rows:,} ({reason}): choose a smaller `batch`."
            ) from None

    def _run(self, name: str, batch: torch.Tensor) -> torch.Tensor:
        engine = self.engines.open(name)
        with engine.ready():
            return engine(batch)
