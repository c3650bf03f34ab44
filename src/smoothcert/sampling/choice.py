"""Which engine runs a model, and with how many rows a batch: the fastest that works, measured on the first input."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.sampling.batches import choose_batch, rate
from smoothcert.sampling.blocks import Input
from smoothcert.sampling.engines import Engine, Engines, HalvingEngine
from smoothcert.sampling.engines.agreement import agree
from smoothcert.sampling.engines.module import BF16
from smoothcert.sampling.executor import Executor, Job
from smoothcert.sampling.identity import Identity
from smoothcert.sampling.separation import fault

EAGER = ("torch", "torch+folded", "torch+folded+channels-last")
FEW = 20  # batches that are run sooner than measured
VARIANTS_PAY, EXPORT_PAYS, COMPILER_PAYS = 3.0, 30.0, 600.0  # seconds that the run would take without
REPETITIONS = 3


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
    engines: Engines, name: str, batch: int | str, x: NDArray[np.float32], *, sigma: float, draws: int
) -> ThisProcess:
    """The engine and the batch that are asked for, or for "auto" the fastest for so many draws at inputs like x.

    "auto" measures eager PyTorch and its variants; ONNX Runtime on the CPU when the run would otherwise take more than
    half a minute, because an export takes seconds; the compiler when it would take more than ten minutes. What cannot
    be built, or disagrees with eager PyTorch on noisy copies of x, is passed over. A run of a few seconds goes to
    eager PyTorch as it is.
    """
    if not isinstance(engines.model, torch.nn.Module):
        engine = engines.open()
        return here(engines, name, choose_batch(batch, engine, x), f"engine {engine.identity}")
    engine, eager = engines.open("torch" if name == "auto" else name), engines.open()
    # The compiler takes a minute for each batch shape: eager PyTorch finds the shape.
    rows = choose_batch(batch, eager if name.startswith("compile") else engine, x)
    contest = _Contest(engines, x, rows, sigma)
    if name != "auto":
        if name != "torch" and BF16 not in name:
            contest.require(name)
        return here(engines, name, rows, f"engine {name}")
    if draws < FEW * rows or not contest.measure(["torch"]):
        return here(engines, "torch", rows, "engine torch: too few draws to measure others")
    cpu = eager.device.type == "cpu"
    if contest.estimate(draws) > VARIANTS_PAY:
        contest.measure(EAGER)
        if cpu and torch.get_num_threads() > 1:
            contest.measure([contest.best, *(f"{name}+lanes" for name in EAGER if "folded" in name)])
    if cpu and contest.estimate(draws) > EXPORT_PAYS:
        contest.measure([contest.best, "onnx"])
    if contest.estimate(draws) > COMPILER_PAYS:
        contest.measure([contest.best, "compile"])
    best, winner = contest.best, engines.open(contest.best)
    if best not in ("torch", "compile"):
        rows = choose_batch(batch, winner, x)
    return here(engines, best, rows, contest.reason())


def here(engines: Engines, name: str, batch: int, reason: str) -> ThisProcess:
    """The engine of that name in this process; on CUDA guarded against memory that is taken away later."""
    engine = engines.open(name)
    return ThisProcess(HalvingEngine(engine) if engine.device.type == "cuda" else engine, batch, reason)


class _Contest:
    """Engines for one module, timed side by side on one batch of noisy copies of x."""

    def __init__(self, engines: Engines, x: NDArray[np.float32], rows: int, sigma: float) -> None:
        self.engines = engines
        self.rates: dict[str, float] = {}
        self.failures: dict[str, str] = {}
        try:
            noise = torch.randn((rows, *x.shape), generator=torch.Generator().manual_seed(0))
            self.rows = (torch.from_numpy(x) + sigma * noise).to(engines.open().device)
        except RuntimeError as error:  # torch has no type of its own for memory of the CPU
            reason = str(error).splitlines()[0]
            raise InputError(
                f"there is no memory for a batch of {rows:,} ({reason}): choose a smaller `batch`."
            ) from None

    @property
    def best(self) -> str:
        return max(self.rates, key=self.rates.__getitem__)

    def estimate(self, draws: int) -> float:
        """Seconds that the draws take with the fastest engine so far."""
        return draws / self.rates[self.best]

    def measure(self, names: Iterable[str]) -> bool:
        """Times those that work, in turns, so that all see the same machine; did all of them work?"""
        working = [name for name in names if self._works(name)]
        for _ in range(REPETITIONS):
            for name in working:
                engine = self.engines.open(name)
                with engine.ready():
                    self.rates[name] = max(rate(engine, self.rows), self.rates.get(name, 0.0))
        return len(working) == len(list(names))

    def require(self, name: str) -> None:
        """Refuses an engine that was asked for and cannot be built, or computes something else."""
        if not self._works(name) and self._works("torch"):
            raise InputError(f"engine {name} cannot run this model ({self.failures[name]}): use engine torch.")

    def reason(self) -> str:
        rates = sorted(self.rates.items(), key=lambda item: -item[1])
        text = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates)
        failed = "".join(f"; {name} was passed over ({why})" for name, why in self.failures.items())
        return f"engine {self.best}: draws a second were {text}{failed}"

    def _works(self, name: str) -> bool:
        if name in self.rates:
            return True
        try:
            self.engines.open(name)
            output = self._run(name)
            if name == "torch" or agree(output, self._run("torch")):
                return True
            self.failures[name] = "its scores differ from those of eager PyTorch"
        except Exception as error:
            self.failures[name] = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        return False

    def _run(self, name: str) -> torch.Tensor:
        engine = self.engines.open(name)
        with engine.ready():
            return engine(self.rows)
