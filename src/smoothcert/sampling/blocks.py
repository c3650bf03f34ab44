"""The atom of sampling: 100 draws of one input in one phase, with votes that depend on nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

BLOCK = 100


class Phase(str, Enum):
    """Streams of noise that never meet."""

    SELECTION = "selection"
    ESTIMATION = "estimation"
    PREDICT = "predict"
    COUNT = "count"


@dataclass(frozen=True)
class Input:
    """One input to certify: `id` names its noise, `array` is what the noise is added to."""

    id: str
    array: NDArray[np.float32]


@dataclass(frozen=True)
class Block:
    """Draws `BLOCK * index … BLOCK * index + draws − 1` of input number `position` in a phase."""

    position: int
    phase: Phase
    index: int
    draws: int = BLOCK


@dataclass(frozen=True)
class Votes:
    """How the draws of blocks `first … last − 1` voted: `counts[i]` for class `classes[i]`, in so many seconds."""

    position: int
    phase: Phase
    first: int
    last: int
    draws: int
    classes: NDArray[np.int64]
    counts: NDArray[np.int64]
    seconds: float


@dataclass(frozen=True)
class Claim:
    """What was said of an input when its draws ended: by the rule that ended them, or by an imported log."""

    position: int
    prediction: int
    radius: float
    n: int
    seconds: float = 0.0


def blocks_of(position: int, phase: Phase, draws: int, start: int = 0) -> Iterator[Block]:
    """Whole blocks from block `start` up to `draws` draws, the last one shorter where it has to be."""
    return (Block(position, phase, b, min(BLOCK, draws - b * BLOCK)) for b in range(start, -(-draws // BLOCK)))


def join(votes: Sequence[Votes]) -> Votes:
    """The votes of consecutive ranges of blocks as one."""
    classes, index = np.unique(np.concatenate([v.classes for v in votes]), return_inverse=True)
    counts = np.bincount(index, weights=np.concatenate([v.counts for v in votes])).astype(np.int64)
    head, draws, seconds = votes[0], sum(v.draws for v in votes), sum(v.seconds for v in votes)
    return Votes(head.position, head.phase, head.first, votes[-1].last, draws, classes, counts, seconds)


def noise_key(seed: int, input_id: str, phase: Phase, index: int) -> bytes:
    """128 bits that name the noise of a block: a hash of (seed, input, phase, block)."""
    name = f"{seed}\0{input_id}\0{phase.value}\0{index}"
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def input_digest(array: NDArray[np.float32]) -> str:
    """A hash of an input's shape and values: its id where no data set names it, and its check on resuming."""
    head = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.blake2b(head + np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()
