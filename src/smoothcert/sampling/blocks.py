"""The atom of sampling: 100 draws of one input in one phase, with votes that depend on nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

BLOCK = 100
NO_CANDIDATE = -1

UNIT = 2**20
"""Shares are kept as whole multiples of 1/UNIT: sums of integers do not depend on the order of adding."""

MOST_SOFT_DRAWS = 2**63 // UNIT**2 - 1
"""More would not fit the sums of their squares."""


class Phase(str, Enum):
    """Streams of noise that never meet."""

    SELECTION = "selection"
    ESTIMATION = "estimation"
    CHOOSE = "choose"
    PREDICT = "predict"
    COUNT = "count"
    ATTACK = "attack"
    CHECK = "check"
    CLEAN = "clean"


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
    candidate: int = NO_CANDIDATE

    def follows(self, other: Block) -> bool:
        """Is this what comes next after the other's draws?"""
        same = self.position == other.position and self.phase is other.phase and self.candidate == other.candidate
        return same and self.index == other.index + 1


class Beside(Protocol):
    """What the scores of some draws add up to, beside the labels. Integers add up to the same in any order."""

    @property
    def candidate(self) -> int:
        """The class that is to be proved, or NO_CANDIDATE while it is selected."""

    @classmethod
    def join(cls, parts: Sequence[Any]) -> Any:
        """Those of several ranges of draws as one."""

    def equals(self, other: Any) -> bool: ...

    def leader(self, draws: int) -> int:
        """The class that so many draws select."""


@dataclass(frozen=True)
class Soft:
    """Sums over draws of the classes' shares k, whole multiples of 1/UNIT: Σ k_j, Σ k_j², Σ k_candidate k_j.

    Where there is no candidate yet the products are 0.
    """

    candidate: int
    sums: NDArray[np.int64]
    squares: NDArray[np.int64]
    products: NDArray[np.int64]

    def equals(self, other: Soft) -> bool:
        ours, theirs = ((s.sums, s.squares, s.products) for s in (self, other))
        return self.candidate == other.candidate and np.array_equal(ours, theirs)

    @classmethod
    def of(cls, shares: NDArray[np.int64], candidate: int) -> Soft:
        """The sums of shares (draws, c)."""
        squares = np.einsum("ij,ij->j", shares, shares)
        products = np.zeros_like(squares) if candidate == NO_CANDIDATE else shares[:, candidate] @ shares
        return cls(candidate, shares.sum(axis=0), squares, products)

    @classmethod
    def join(cls, parts: Sequence[Soft]) -> Soft:
        """Those of several ranges of draws as one."""
        columns = ([getattr(p, name) for p in parts] for name in ("sums", "squares", "products"))
        return cls(parts[0].candidate, *(np.sum(column, axis=0) for column in columns))

    def leader(self, draws: int) -> int:
        """The class with the largest sum of shares, the lowest id among equal ones."""
        return int(self.sums.argmax())


@dataclass(frozen=True)
class Votes:
    """How the draws of blocks `first … last − 1` voted: `counts[i]` for class `classes[i]`, in so many seconds.

    Where votes are made of scores, what these add up to is kept `beside`: sums of shares, or lost duels.
    """

    position: int
    phase: Phase
    first: int
    last: int
    draws: int
    classes: NDArray[np.int64]
    counts: NDArray[np.int64]
    seconds: float
    beside: Beside | None = None

    def says_the_same_as(self, other: Votes) -> bool:
        """Equal counts, and equal sums beside them, in whatever time."""
        return np.array_equal([self.classes, self.counts], [other.classes, other.counts]) and (
            self.beside is other.beside is None
            or (self.beside is not None and other.beside is not None and self.beside.equals(other.beside))
        )

    @property
    def candidate(self) -> int:
        """The class that the draws were made for, if any."""
        return NO_CANDIDATE if self.beside is None else self.beside.candidate


@dataclass(frozen=True)
class Claim:
    """What was said of an input when its draws ended: by the rule that ended them, or by an imported log."""

    position: int
    prediction: int
    radius: float
    n: int
    seconds: float = 0.0


def blocks_of(
    position: int, phase: Phase, draws: int, start: int = 0, candidate: int = NO_CANDIDATE
) -> Iterator[Block]:
    """Whole blocks from block `start` up to `draws` draws, the last one shorter where it has to be."""
    return (
        Block(position, phase, b, min(BLOCK, draws - b * BLOCK), candidate) for b in range(start, -(-draws // BLOCK))
    )


def join(votes: Sequence[Votes]) -> Votes:
    """The votes of consecutive ranges of blocks as one."""
    classes, index = np.unique(np.concatenate([v.classes for v in votes]), return_inverse=True)
    counts = np.bincount(index, weights=np.concatenate([v.counts for v in votes])).astype(np.int64)
    head, draws, seconds = votes[0], sum(v.draws for v in votes), sum(v.seconds for v in votes)
    beside = None if head.beside is None else head.beside.join([v.beside for v in votes if v.beside is not None])
    return Votes(head.position, head.phase, head.first, votes[-1].last, draws, classes, counts, seconds, beside)


def noise_key(seed: int, input_id: str, phase: Phase, index: int) -> bytes:
    """128 bits that name the noise of a block: a hash of (seed, input, phase, block)."""
    name = _stream(seed, input_id, phase).copy()
    name.update(b"%d" % index)
    return name.digest()


@lru_cache(maxsize=1024)
def _stream(seed: int, input_id: str, phase: Phase) -> hashlib.blake2b:
    """The hash before a block is named; blocks of one stream come in their thousands."""
    name = f"{seed}\0{input_id}\0{phase.value}\0"
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16)


def input_digest(array: NDArray[np.float32]) -> str:
    """A hash of an input's shape and values: its id where no data set names it, and its check on resuming."""
    head = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.blake2b(head + np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()
