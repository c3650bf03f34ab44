"""Blocks in, votes out, in this process: batches of one fixed shape that mix blocks of many inputs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.errors import InputError, RunError
from smoothcert.sampling.blocks import BLOCK, Beside, Block, Input, Votes, noise_key
from smoothcert.sampling.engines import Engine
from smoothcert.sampling.noise import Centre, Noise, Piece

AHEAD, SMALL = 8, 1 << 19
"""How many batches of at most so many numbers wait for a lane, besides one; what waits is not drawn yet."""

Ballots = tuple[NDArray[np.int64], NDArray[Any]]
"""The label of each row that belongs to a block, and what is counted beside it (rows, c), or no columns."""


class Counting(Protocol):
    """A kind of votes: what is counted beside the labels."""

    @property
    def name(self) -> str: ...

    @property
    def of_scores(self) -> bool:
        """Does it take scores? Labels do without."""

    def ballots(self, scores: torch.Tensor) -> torch.Tensor:
        """What is counted of each row of scores (N, c)."""

    def count(self, ballots: NDArray[Any], candidate: int) -> Beside | None:
        """What the rows of consecutive blocks add up to."""


class Segment(NamedTuple):
    """Rows `start … stop − 1` of a batch: consecutive draws of one block, which may go on in the next batch."""

    block: Block
    input_id: str
    noise: Piece
    start: int
    stop: int
    goes_on: bool


def _stretches(segments: list[Segment]) -> Iterator[tuple[Segment, Segment]]:
    """The first and the last of segments whose blocks follow each other and end here; a block that goes on is alone."""
    first = last = segments[0]
    for s in segments[1:]:
        if s.goes_on or not s.block.follows(last.block):
            yield first, last
            first = s
        last = s
    yield first, last


@dataclass(frozen=True)
class Job:
    """What votes depend on besides their engine, their inputs and their blocks; it can be sent to another machine."""

    noise: Noise
    num_classes: int
    seed: int
    batch: int
    votes: Counting


class Executor:
    """Draws blocks with one engine: x + noise, forward, count the labels and what the kind of votes has beside them.

    Every batch has `batch` rows, the last one padded, because kernels may round differently at other shapes. Memory is
    two batches, or one for each of the engine's lanes, a few inputs, and what the engine needs for a batch in each.
    """

    def __init__(self, engine: Engine, inputs: Callable[[int], Input], job: Job) -> None:
        self.engine, self.job = engine, job

        @lru_cache(maxsize=2 + job.batch // BLOCK)
        def on_device(position: int) -> tuple[str, Centre]:
            source = inputs(position)
            return source.id, job.noise.centre(source.array).moved(engine.device)

        self._input = on_device

    def run(self, blocks: Iterable[Block | None]) -> Iterator[Votes]:
        """The votes of the blocks, in order; those of consecutive blocks that end in the same batch together.

        None among the blocks asks for the votes of all blocks before it.
        """
        labels: list[NDArray[np.int64]] = []
        others: list[NDArray[Any]] = []
        seconds, before = 0.0, perf_counter()
        for segments, (batch_labels, batch_others) in self._ballots(blocks):
            per_row = (perf_counter() - before) / len(batch_labels)
            before = perf_counter()
            for first, last in _stretches(segments):
                labels.append(batch_labels[first.start : last.stop])
                others.append(batch_others[first.start : last.stop])
                seconds += per_row * len(labels[-1])
                if not last.goes_on:
                    ballots = np.concatenate(labels)
                    counts = np.bincount(ballots)
                    classes = counts.nonzero()[0]
                    beside = self.job.votes.count(np.concatenate(others), last.block.candidate)
                    stretch = last.block.position, last.block.phase, first.block.index, last.block.index + 1
                    yield Votes(*stretch, len(ballots), classes, counts[classes], seconds, beside)
                    labels, others, seconds = [], [], 0.0

    def _ballots(self, blocks: Iterable[Block | None]) -> Iterator[tuple[list[Segment], Ballots]]:
        """What each batch is made of and what the model said of it, in order.

        An engine of one lane runs in this thread, and a thread beside it draws the noise of the next batch. Several
        lanes are a thread each, for noise and model; of small batches some wait, so that no lane waits for this thread.
        """
        lanes, ahead = self.engine.lanes, 0
        under_way: deque[tuple[list[Segment], Callable[[], Ballots]]] = deque()

        def oldest() -> tuple[list[Segment], Ballots]:
            segments, result = under_way.popleft()
            return segments, result()

        with self.engine.ready(), ThreadPoolExecutor(lanes) as pool:
            for segments in self._batches(blocks):
                if segments and lanes == 1:
                    noise = pool.submit(self._noise, segments)
                    under_way.append((segments, partial(self._cast, noise.result, segments)))
                elif segments:
                    ballots = pool.submit(self._cast, partial(self._noise, segments), segments)
                    under_way.append((segments, ballots.result))
                    ahead = AHEAD if self.job.batch * math.prod(segments[0].noise.centre.values.shape) <= SMALL else 0
                while under_way and (len(under_way) > lanes + ahead or not segments):
                    yield oldest()
            while under_way:
                yield oldest()

    def _batches(self, blocks: Iterable[Block | None]) -> Iterator[list[Segment]]:
        """Which rows of each batch belong to which blocks; an empty list where no more is known until votes are."""
        segments: list[Segment] = []
        shape: tuple[int, ...] | None = None
        filled = 0
        for block in blocks:
            if block is None:
                if segments:
                    yield segments
                yield []  # while this one is awaited nothing more is asked for, and the votes so far are told
                segments, filled = [], 0
                continue
            input_id, centre = self._input(block.position)
            found = tuple(centre.values.shape)
            shape = shape or found
            if found != shape:
                raise InputError(
                    f"input {input_id} has shape {found}, the inputs before it {shape}: bring all inputs to one shape."
                )
            key = noise_key(self.job.seed, input_id, block.phase, block.index)
            done = 0
            while done < block.draws:
                take = min(block.draws - done, self.job.batch - filled)
                piece, goes_on = Piece(key, done, take, centre), done + take < block.draws
                segments.append(Segment(block, input_id, piece, filled, filled + take, goes_on))
                done, filled = done + take, filled + take
                if filled == self.job.batch:
                    yield segments
                    segments, filled = [], 0
        if segments:
            yield segments

    def _noise(self, segments: list[Segment]) -> torch.Tensor:
        """The noisy inputs of a batch; rows that belong to no block are 0."""
        shape, used = (self.job.batch, *segments[0].noise.centre.values.shape), segments[-1].stop
        rows = torch.empty(shape, dtype=torch.float32, device=self.engine.device)
        rows[used:] = 0
        self.job.noise.draw([s.noise for s in segments], rows[:used])
        return rows

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The model's answers to a batch; what it raises is said in one sentence."""
        try:
            return self.engine(rows)
        except (InputError, RunError):
            raise
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise RunError(
                f"the model failed on a batch of shape {tuple(rows.shape)} ({reason}): check that it takes inputs "
                f"of this shape."
            ) from error

    def _cast(self, noise: Callable[[], torch.Tensor], segments: list[Segment]) -> Ballots:
        """What the model says of the inputs with their noise."""
        rows = noise()
        output = self.forward(rows)
        try:
            return self._read(output, len(rows), segments)
        except RunError:
            raise
        except (RuntimeError, TypeError) as error:  # torch compares no complex, sparse or quantised numbers
            raise InputError(
                f"what the model returned (a tensor of {output.dtype}) cannot be read as scores "
                f"({str(error).splitlines()[0].rstrip('.')}): return floating-point scores or integer labels."
            ) from error

    def _read(self, output: torch.Tensor, size: int, segments: list[Segment]) -> Ballots:
        used = segments[-1].stop
        if len(output.shape) not in (1, 2) or output.shape[0] != size:
            raise InputError(
                f"the model returned shape {tuple(output.shape)} for a batch of {size} (input "
                f"{segments[0].input_id}): it must return scores (N, {self.job.num_classes}) or labels (N,)."
            )
        output = output[:used]
        if output.ndim == 2:
            if output.shape[1] != self.job.num_classes:
                raise InputError(
                    f"the model returned {output.shape[1]} scores for input {segments[0].input_id}, expected "
                    f"{self.job.num_classes}: pass the right number of classes."
                )
            if not torch.isfinite(output.sum()):  # one number tells; what only adds up to infinity is looked at again
                self._require(torch.isfinite(output), segments, "scores that are NaN or infinite")
            return output.argmax(dim=1).cpu().numpy(), self.job.votes.ballots(output).cpu().numpy()
        if self.job.votes.of_scores:
            raise InputError(
                f"the model returns labels, and {self.job.votes.name} votes are made of scores: use labels."
            )
        if output.is_floating_point():
            raise InputError("the model returned one float per input: it must return scores (N, classes) or integers.")
        self._require((output >= 0) & (output < self.job.num_classes), segments, "a label out of range")
        return output.to("cpu", torch.int64).numpy(), np.empty((used, 0), dtype=np.int64)

    def _require(self, good: torch.Tensor, segments: list[Segment], fault: str) -> None:
        if not bool(good.all()):
            row = int((~good).nonzero()[0, 0])
            input_id = next(s.input_id for s in segments if s.start <= row < s.stop)
            raise RunError(
                f"the model returned {fault} for input {input_id} under noise: such votes certify nothing, repair "
                f"the model first."
            )
