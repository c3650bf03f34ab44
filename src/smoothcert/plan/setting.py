"""How a run is computed: what changes nothing that is asked, but may change which votes answer it."""

from __future__ import annotations

import dataclasses
import secrets
from dataclasses import dataclass
from typing import Any

from smoothcert.checks import check_batch, check_number, check_seed, check_whole
from smoothcert.errors import InputError
from smoothcert.options import aside, keep, option
from smoothcert.sampling.identity import INT8, Identity
from smoothcert.sampling.noise import STREAM, STREAMS

ENGINE, MACHINES = "Model and engine", "Many machines"


def batch_size(text: str) -> int | str:
    """A number where it is one."""
    return int(text) if text.isascii() and text.isdigit() else text


@dataclass(frozen=True)
class Cluster:
    """Workers on a Ray cluster, each with `cpus` threads and `gpus` GPUs (a fraction shares one).

    `address` is "auto", "ray://host:port" or "host:port"; without one, Ray is started on this machine alone and stopped
    at the end. Without `workers` there are as many as the cluster has room for.
    """

    address: str | None = option(
        None, help="Draw on a Ray cluster: auto, ray://host:port or host:port.", panel=MACHINES, flag="cluster"
    )
    workers: int | None = option(
        None, help="Worker processes, on this machine unless a cluster is given.", panel=MACHINES
    )
    cpus: int = option(1, help="CPUs of a worker, and its threads.", panel=MACHINES, flag="cpus-per-worker")
    gpus: float = option(
        0.0, help="GPUs of a worker; 0.5 puts two workers on one.", panel=MACHINES, flag="gpus-per-worker"
    )

    def __post_init__(self) -> None:
        if self.address is None and self.workers is None:
            raise InputError("a cluster needs an address or a number of workers: pass `address` or `workers`.")
        if self.workers is not None:
            check_whole("workers", self.workers, 1)
        check_whole("cpus", self.cpus, 1)
        gpus = check_number("gpus", self.gpus)
        if not (0 <= gpus <= 1 or (gpus > 1 and gpus.is_integer())):
            raise InputError(f"gpus must be a fraction of one GPU or a whole number of them, got {self.gpus!r}.")

    def __str__(self) -> str:
        return "this machine" if self.address is None else f"the cluster {self.address}"


@dataclass(frozen=True)
class Setting:
    """Which engine draws, how many rows at a time, from which noise, and where.

    A run keeps the identity of the engine that it got, the batch and the version of its streams of noise; where it is
    drawn is not part of it.
    """

    engine: str | Identity = option(
        "auto",
        help="auto takes the fastest; torch, onnx (ONNX Runtime on the CPU), onnx+int8, compile, torch+bf16.",
        panel=ENGINE,
        parse=str,
    )
    batch: int | str = option("auto", help="Rows a forward pass, or auto.", panel=ENGINE, parse=batch_size)
    seed: int | None = option(
        None,
        help="Names the noise: the same one draws it again. Fresh from the operating system unless given.",
        panel="Noise",
    )
    calibration: Any = option(
        None,
        help="Data whose noisy copies calibrate onnx+int8; inputs that are certified unless given.",
        panel=ENGINE,
        parse=str,
        recorded=False,
    )
    cluster: Cluster | None = aside()
    stream: int = STREAM

    def __post_init__(self) -> None:
        if self.stream not in STREAMS:
            raise InputError(f"noise of stream version {self.stream} is not known here: use a newer smoothcert.")
        if self.calibration is not None and self.engine != INT8:
            raise InputError(f"`calibration` is for the engine {INT8}: leave it out, or ask for that engine.")
        check_batch(self.batch)
        keep(self, seed=None if self.seed is None else check_seed(self.seed))
        if self.seed is None and isinstance(self.engine, Identity):
            raise InputError("what an engine has drawn has a seed: pass `seed`.")

    def settled(self, engine: Identity, batch: int, seed: int) -> Setting:
        """With what was chosen; what has calibrated the engine is behind it."""
        return dataclasses.replace(self, engine=engine, batch=batch, seed=seed, calibration=None)

    @property
    def rows(self) -> int:
        """The batch of a setting that is settled."""
        assert isinstance(self.batch, int)
        return self.batch

    @property
    def machine(self) -> Identity:
        """The engine of a setting that is settled."""
        assert isinstance(self.engine, Identity)
        return self.engine

    @property
    def known_seed(self) -> int:
        """The seed of a setting that is settled."""
        assert self.seed is not None
        return self.seed


def fresh_seed() -> int:
    """64 bits from the operating system, which no model that exists by now can know."""
    return secrets.randbits(64)
