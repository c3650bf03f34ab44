"""How many rows a batch should have, and how fast an engine is with so many."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.errors import InputError, RunError
from smoothcert.sampling.engines import Engine

SIZES, LARGE = (4, 25, 100, 400, 1600), 6400
"""Batches that are tried: none of them cuts a block unevenly. The large one is for long runs alone, because the ends of
what is asked for are padded."""

MEMORY = 2**28
LONG_ENOUGH, SHORTEST = 0.5, 0.02
"""Seconds that a batch takes at most, where a smaller one is as fast, and that a measurement takes at least."""

PYTHON = 3e-4
"""Seconds that a batch costs beside the forward pass, whatever its size."""


class Patience:
    """How long it may take to choose for so many draws: a sixth of what they take at the best rate so far, and a
    minute at most. The first measurement is made in any case, and what has begun is ended."""

    def __init__(self, draws: float = math.inf) -> None:
        self.draws, self.rate, self._start = draws, 0.0, perf_counter()

    @property
    def estimate(self) -> float:
        """Seconds that the draws take at the best rate so far."""
        return self.draws / self.rate if self.rate else math.inf

    @property
    def left(self) -> float:
        """Seconds."""
        return min(self.estimate / 6, 60.0) - (perf_counter() - self._start)


def sizes_for(draws: float) -> tuple[int, ...]:
    """Batches that are tried for so many draws."""
    return (*SIZES, LARGE) if draws >= 16 * LARGE else SIZES


def choose_batch(batch: int | str, engine: Engine, x: NDArray[np.float32], patience: Patience | None = None) -> int:
    """The given size, or for "auto" the smallest within 3 % of the best rate at inputs like x."""
    if isinstance(batch, int):
        require_room(batch, engine, x)
        return batch
    sizes = SIZES if patience is None else sizes_for(patience.draws)
    return fastest_batch(engine, x, sizes, patience or Patience())[0]


def fastest_batch(
    engine: Engine, x: NDArray[np.float32], sizes: tuple[int, ...], patience: Patience
) -> tuple[int, float]:
    """One of the sizes and its draws a second: the smallest within 3 % of the best rate.

    Larger sizes are tried while the rate grows and there is patience, up to as many rows as are wanted, 256 MiB of
    inputs or half a second; less where the device has less memory. Where there was no time to see the rate fall, one
    that takes a fiftieth of a second at the rate so far is taken untried: calls outweigh rows in smaller ones.
    """
    rates: dict[int, float] = {}
    with engine.ready():
        for size in sizes:
            if rates and not _worth_trying(size, rates, engine, x, patience):
                break
            try:
                rates[size] = rate(engine, x, size, patience)
            except torch.cuda.OutOfMemoryError:
                sizes = tuple(rates)
                break
            except (InputError, RunError):
                raise
            except Exception as error:
                if rates:
                    sizes = tuple(rates)  # the smaller ones work
                    break
                reason = (str(error) or type(error).__name__).splitlines()[0]
                raise InputError(
                    f"the model fails on {size} rows of shape {x.shape} ({reason}): check the model, or pass `batch`."
                ) from error
        if not rates:
            rates[1] = _of_one_row(engine, x, patience)
    chosen = min(size for size, rate in rates.items() if rate >= 0.97 * max(rates.values()))
    found = rates[chosen]
    if chosen == max(rates):  # the rate still grows, as far as there was time to see
        rows = min(found * SHORTEST, patience.draws, MEMORY / x.nbytes) / engine.lanes
        chosen = max([chosen, *(size for size in sizes if size <= rows)])
    return chosen, found


def _worth_trying(
    size: int, rates: dict[int, float], engine: Engine, x: NDArray[np.float32], patience: Patience
) -> bool:
    last, *before = reversed(rates)
    seconds = size * engine.lanes / rates[last]
    return (
        last < patience.draws
        and size * x.nbytes * engine.lanes <= MEMORY
        and seconds <= LONG_ENOUGH
        and 2 * seconds <= patience.left
        and all(rates[last] > 1.03 * rates[b] for b in before)
    )


def require_room(batch: int, engine: Engine, x: NDArray[np.float32]) -> None:
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


def _of_one_row(engine: Engine, x: NDArray[np.float32], patience: Patience) -> float:
    try:
        return rate(engine, x, 1, patience)
    except torch.cuda.OutOfMemoryError:
        raise InputError(
            f"one input of shape {x.shape} takes more memory than {engine.device} has: use another device."
        ) from None


def rate(engine: Engine, x: NDArray[np.float32], size: int, patience: Patience) -> float:
    """Draws a second in batches of this size, one in every lane at once; patience takes note of it.

    After a pass to warm up, which a short run has to be content with one more of.
    """
    rows = torch.from_numpy(np.repeat(x[None], size, axis=0)).to(engine.device)

    def run(passes: int) -> None:
        for _ in range(passes):
            engine(rows).sum().item()

    def seconds(passes: int) -> float:
        start = perf_counter()
        list(map_lanes(run, [passes] * engine.lanes))
        return (perf_counter() - start) / passes

    with ThreadPoolExecutor(engine.lanes) as pool:
        map_lanes = pool.map if engine.lanes > 1 else map  # one lane runs where the threads of torch are warm
        warm = seconds(1)
        passes = max(1, min(100, round(min(SHORTEST, patience.left) / warm)))
        found = min(seconds(passes) for _ in range(2 if passes > 1 else 1))
    draws = engine.lanes * size / (found + PYTHON)
    patience.rate = max(patience.rate, draws)
    return draws
