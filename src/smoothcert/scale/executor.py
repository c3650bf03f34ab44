"""Blocks in, votes out, drawn by workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any, Protocol

from smoothcert.sampling.blocks import BLOCK, Block, Input, Votes
from smoothcert.sampling.executor import Job

CHUNK_SECONDS, CHUNK_BLOCKS, CHUNKS_A_SECOND = 0.25, 100, 64
"""A chunk takes about so many seconds, more where the driver would see more than so many chunks a second. It has no
more than so many blocks, because each may bring an input along."""

AHEAD = 32
"""Chunks a worker that may be answered before their turn has come."""


@dataclass(eq=False)
class Task:
    """A call of a method of any worker, about so many blocks; `answer` is there once `done`."""

    method: str
    arguments: tuple[Any, ...]
    tries: int = 0
    done: bool = False
    answer: Any = None
    blocks: int = 0


class Pool(Protocol):
    """What chunks are given to."""

    @property
    def size(self) -> int: ...

    @property
    def has_room(self) -> bool: ...

    @property
    def has_idle(self) -> bool: ...

    def submit(self, method: str, *arguments: Any, blocks: int = 0) -> Task: ...

    def wait(self) -> None: ...


@dataclass(eq=False)
class Chunk:
    """Blocks that go to a worker together."""

    positions: set[int]
    task: Task


class ClusterExecutor:
    """Has the interface of `sampling.Executor`, and its votes.

    Blocks are sent in chunks of whole batches that take about a quarter of a second, with the inputs they need, to
    whichever worker is free. Not more is asked of the schedule than the workers have room for.
    """

    def __init__(self, workers: Pool, inputs: Callable[[int], Input], job: Job) -> None:
        self.workers, self.job = workers, job
        self._input = lru_cache(maxsize=64)(inputs)
        self._least = self._size = whole_batches(job.batch)

    def run(self, blocks: Iterable[Block | None]) -> Iterator[Votes]:
        """The votes of the blocks; those of one input in order. None among the blocks asks for votes of some before it.

        It returns to the schedule as soon as any votes are known, so that no worker waits for the slowest.
        """
        chunks: list[Chunk] = []
        for wanted in self._wanted(blocks):
            if wanted:
                chunks.append(self._send(wanted))
            told = False
            while chunks and not (told if not wanted else self._may_ask(chunks)):
                self.workers.wait()
                for votes in self._answered(chunks):
                    told = True
                    yield votes
        while chunks:
            self.workers.wait()
            yield from self._answered(chunks)

    def _wanted(self, blocks: Iterable[Block | None]) -> Iterator[list[Block]]:
        """Blocks to send together; an empty list where no more is known until votes are."""
        wanted: list[Block] = []
        for block in blocks:
            if block is not None:
                wanted.append(block)
                if len(wanted) < self._size:
                    continue
            elif not self.workers.has_idle:
                yield []  # the chunk may fill up while all are busy
                continue
            yield wanted
            wanted = []
        if wanted:
            yield wanted

    def _may_ask(self, chunks: list[Chunk]) -> bool:
        return self.workers.has_room and len(chunks) < AHEAD * self.workers.size

    def _send(self, blocks: list[Block]) -> Chunk:
        inputs = {b.position: self._input(b.position) for b in blocks}
        return Chunk(set(inputs), self.workers.submit("draw", blocks, inputs, self.job, blocks=len(blocks)))

    def _answered(self, chunks: list[Chunk]) -> Iterator[Votes]:
        """Takes out the chunks that are answered and have no input in common with an earlier one that is not."""
        waiting: set[int] = set()
        for chunk in list(chunks):
            if not chunk.task.done or not waiting.isdisjoint(chunk.positions):
                waiting |= chunk.positions
                continue
            chunks.remove(chunk)
            votes: list[Votes] = chunk.task.answer
            self._resize(sum(v.seconds for v in votes) / sum(v.last - v.first for v in votes))
            yield from votes

    def _resize(self, seconds: float) -> None:
        """So many blocks of that many seconds each that a chunk is worth its way."""
        wanted = max(CHUNK_SECONDS, self.workers.size / CHUNKS_A_SECOND)
        blocks = min(CHUNK_BLOCKS, wanted / max(seconds, 1e-9))
        self._size = self._least * max(1, round(blocks / self._least))


def whole_batches(batch: int) -> int:
    """The fewest blocks that leave less than 5 % of their batches empty.

    >>> [whole_batches(batch) for batch in (50, 100, 128, 400)]
    [1, 1, 5, 4]
    """
    return next(k for k in count(1) if -k * BLOCK % batch <= 0.05 * k * BLOCK)
