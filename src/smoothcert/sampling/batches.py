"""How many rows a batch should have."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.errors import InputError, RunError
from smoothcert.sampling.blocks import BLOCK
from smoothcert.sampling.engines import Engine

SIZES = (25, 50, 100, 200, 400, 800, 1600)
SMALLER = (12, 6, 3, 1)
MEMORY = 2**28
LONG_ENOUGH, SHORTEST = 0.5, 0.02  # seconds
PYTHON = 3e-4  # seconds that a batch costs beside the forward pass, whatever its size


def choose_batch(batch: int | str, engine: Engine, x: NDArray[np.float32]) -> int:
    """The given size, or for "auto" the smallest within 3 % of the best rate, estimated from passes on inputs like x.

    Larger sizes are not tried once a batch takes half a second (nothing is left to gain), 256 MiB, or more memory
    than the device has. Sizes that would cut a block in pieces are taken only where no other was tried.
    """
    if isinstance(batch, int):
        _require_room(batch, engine, x)
        return batch
    rates: dict[int, float] = {}
    with engine.ready():
        for size in SIZES:
            if rates and size * x.nbytes * engine.lanes > MEMORY:
                break
            try:
                rates[size] = 1 / (1 / _rate(engine, x, size) + PYTHON / size)
            except torch.cuda.OutOfMemoryError:
                break
            except RunError:
                raise
            except Exception as error:
                if rates:
                    break  # the smaller sizes work
                reason = (str(error) or type(error).__name__).splitlines()[0]
                raise InputError(
                    f"the model fails on {size} rows of shape {x.shape} ({reason}): check the model, or pass `batch`."
                ) from error
            if size * engine.lanes / rates[size] > LONG_ENOUGH:
                break
        if not rates:
            return _largest_that_fits(engine, x)
    rates = {size: rate for size, rate in rates.items() if size % BLOCK == 0} or rates
    return min(size for size, rate in rates.items() if rate >= 0.97 * max(rates.values()))


def _require_room(batch: int, engine: Engine, x: NDArray[np.float32]) -> None:
    """Refuses a batch whose rows alone, with their noise, take more memory than the device has.

    Linux promises memory that it does not have, and ends the process that uses it.
    """
    needed, there = 2 * batch * x.nbytes * engine.lanes, _memory(engine.device)
    if there is not None and needed > there:
        raise InputError(
            f"batches of {batch:,} inputs take {needed / 1e9:,.1f} GB before the model has run, and {engine.device} "
            f"has {there / 1e9:,.1f} GB: choose a smaller `batch`."
        )


def _memory(device: torch.device) -> int | None:
    """Bytes of memory that the device has in all, where that can be told."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    if device.type != "cpu" or "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _largest_that_fits(engine: Engine, x: NDArray[np.float32]) -> int:
    for size in SMALLER:
        try:
            _rate(engine, x, size)
        except torch.cuda.OutOfMemoryError:
            continue
        return size
    raise InputError(f"one input of shape {x.shape} takes more memory than {engine.device} has: use another device.")


def _rate(engine: Engine, x: NDArray[np.float32], size: int) -> float:
    return rate(engine, torch.from_numpy(np.repeat(x[None], size, axis=0)).to(engine.device))


def rate(engine: Engine, rows: torch.Tensor) -> float:
    """Rows a second with a batch in every lane at once: the better of two measurements, after one pass to warm up."""

    def run(passes: int) -> None:
        for _ in range(passes):
            engine(rows).sum().item()

    def seconds(passes: int) -> float:
        start = perf_counter()
        list(map_lanes(run, [passes] * engine.lanes))
        return (perf_counter() - start) / passes

    with ThreadPoolExecutor(engine.lanes) as pool:
        map_lanes = pool.map if engine.lanes > 1 else map  # one lane runs where the threads of torch are warm
        passes = min(100, max(1, round(SHORTEST / seconds(1))))
        return engine.lanes * len(rows) / min(seconds(passes) for _ in range(2))
