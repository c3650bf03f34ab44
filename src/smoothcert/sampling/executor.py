"""Blocks in, votes out, in this process: batches of one fixed shape that mix blocks of many inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.errors import InputError, RunError
from smoothcert.sampling.blocks import BLOCK, Block, Input, Soft, Votes, noise_key
from smoothcert.sampling.engines import Engine
from smoothcert.sampling.noise import Noise, Stream


@dataclass(frozen=True)
class Segment:
    """Rows `start … stop − 1` of a batch: consecutive draws of one block."""

    block: Block
    input_id: str
    x: torch.Tensor
    noise: Stream
    start: int
    stop: int


class Executor:
    """Draws blocks with one engine: x + noise, forward, count; with `shares`, a map from scores to shares of a vote in
    whole multiples of 1/UNIT, also their sums.

    Every batch has `batch` rows, the last one padded, because kernels may round differently at other shapes. Memory
    is two batches, a few inputs, and what the engine needs for a batch.
    """

    def __init__(
        self,
        engine: Engine,
        inputs: Callable[[int], Input],
        *,
        noise: Noise,
        num_classes: int,
        seed: int,
        batch: int,
        shares: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self.engine, self.noise, self.num_classes, self.seed, self.batch, self.shares = (
            engine,
            noise,
            num_classes,
            seed,
            batch,
            shares,
        )

        @lru_cache(maxsize=2 + batch // BLOCK)
        def on_device(position: int) -> tuple[str, torch.Tensor]:
            source = inputs(position)
            return source.id, torch.from_numpy(source.array).to(engine.device)

        self._input = on_device

    def run(self, blocks: Iterable[Block | None]) -> Iterator[Votes]:
        """The votes of each block, in order. None among the blocks asks for those of all blocks before it.

        While the model runs on one batch, the noise of the next is drawn.
        """
        threads = torch.get_num_threads()  # before the engine may keep to one
        with ThreadPoolExecutor(threads) as pool, self.engine.ready():
            batches = self._batches(blocks)
            buffers = [torch.empty(0), torch.empty(0)]
            labels: list[NDArray[np.int64]] = []
            shares: list[NDArray[np.int64]] = []
            seconds, before = 0.0, perf_counter()
            segments = next(batches, None)
            noise = self._draw_noise(buffers, segments or [], pool, threads)
            while segments is not None:
                rows = self._add_inputs(buffers, segments, noise)
                ahead = next(batches, None)
                noise = self._draw_noise(buffers, ahead or [], pool, threads)
                if segments:
                    batch_labels, batch_shares = self._votes(rows, segments)
                    per_row = (perf_counter() - before) / len(batch_labels)
                    before = perf_counter()
                for segment in segments:
                    labels.append(batch_labels[segment.start : segment.stop])
                    shares.append(batch_shares[segment.start : segment.stop])
                    seconds += per_row * len(labels[-1])
                    if sum(map(len, labels)) == segment.block.draws:
                        b = segment.block
                        counts = np.bincount(np.concatenate(labels))
                        classes = counts.nonzero()[0]
                        soft = Soft.of(np.concatenate(shares), b.candidate) if self.shares else None
                        facts = b.position, b.phase, b.index, b.index + 1, b.draws
                        yield Votes(*facts, classes, counts[classes], seconds, soft)
                        labels, shares, seconds = [], [], 0.0
                segments = ahead

    def _batches(self, blocks: Iterable[Block | None]) -> Iterator[list[Segment]]:
        """Which rows of each batch belong to which blocks; an empty list where no more is known until votes are."""
        segments: list[Segment] = []
        shape: torch.Size | None = None
        filled = 0
        for block in blocks:
            if block is None:
                if segments:
                    yield segments
                yield []  # while this one is awaited nothing more is asked for, and the votes so far are told
                segments, filled = [], 0
                continue
            input_id, x = self._input(block.position)
            shape = shape or x.shape
            if x.shape != shape:
                raise InputError(
                    f"input {input_id} has shape {tuple(x.shape)}, the inputs before it {tuple(shape)}: bring all "
                    f"inputs to one shape."
                )
            noise = self.noise.stream(noise_key(self.seed, input_id, block.phase, block.index), x, x.device)
            done = 0
            while done < block.draws:
                take = min(block.draws - done, self.batch - filled)
                segments.append(Segment(block, input_id, x, noise, filled, filled + take))
                done, filled = done + take, filled + take
                if filled == self.batch:
                    yield segments
                    segments, filled = [], 0
        if segments:
            yield segments

    def _draw_noise(
        self, buffers: list[torch.Tensor], segments: list[Segment], pool: ThreadPoolExecutor, threads: int
    ) -> list[Future[None]]:
        """Begins to fill the rows of the next batch with noise, in the buffer that is not in use."""
        if segments and not len(buffers[1]):
            x = segments[0].x
            with torch.inference_mode(False):  # which belongs to this thread, and others fill the buffer
                buffers[1] = torch.zeros((self.batch, *x.shape), dtype=torch.float32, device=x.device)
        tasks = min(threads, len(segments))
        return [pool.submit(_fill, buffers[1], segments[i::tasks]) for i in range(tasks)]

    def _add_inputs(
        self, buffers: list[torch.Tensor], segments: list[Segment], noise: list[Future[None]]
    ) -> torch.Tensor:
        """x + noise, when the noise is there; the buffers change places."""
        for future in noise:
            future.result()
        if segments:
            buffers.reverse()
        for s in segments:
            self.noise.add(s.x, buffers[0][s.start : s.stop])
        return buffers[0]

    def _votes(self, rows: torch.Tensor, segments: list[Segment]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The label of each row that belongs to a block, and its shares (rows, c), without columns if none are kept."""
        try:
            output = self.engine(rows)
        except (InputError, RunError):
            raise
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise RunError(
                f"the model failed on a batch of shape {tuple(rows.shape)} ({reason}): check that it takes inputs "
                f"of this shape."
            ) from error
        used = segments[-1].stop
        if output.shape[:1] != rows.shape[:1] or output.ndim not in (1, 2):
            raise InputError(
                f"the model returned shape {tuple(output.shape)} for a batch of {len(rows)} (input "
                f"{segments[0].input_id}): it must return scores (N, {self.num_classes}) or labels (N,)."
            )
        output = output[:used]
        if output.ndim == 2:
            if output.shape[1] != self.num_classes:
                raise InputError(
                    f"the model returned {output.shape[1]} scores for input {segments[0].input_id}, expected "
                    f"{self.num_classes}: pass the right number of classes."
                )
            self._require(torch.isfinite(output), segments, "scores that are NaN or infinite")
            shares = output[:, :0].long() if self.shares is None else self.shares(output)
            return output.argmax(dim=1).cpu().numpy(), shares.cpu().numpy()
        if self.shares is not None:
            raise InputError("the model returns labels, and soft votes are made of scores: use hard votes.")
        if output.is_floating_point():
            raise InputError("the model returned one float per input: it must return scores (N, classes) or integers.")
        self._require((output >= 0) & (output < self.num_classes), segments, "a label out of range")
        return output.to("cpu", torch.int64).numpy(), np.empty((used, 0), dtype=np.int64)

    def _require(self, good: torch.Tensor, segments: list[Segment], fault: str) -> None:
        if not bool(good.all()):
            row = int((~good).nonzero()[0, 0])
            input_id = next(s.input_id for s in segments if s.start <= row < s.stop)
            raise RunError(
                f"the model returned {fault} for input {input_id} under noise: such votes certify nothing, repair "
                f"the model first."
            )


def _fill(buffer: torch.Tensor, segments: list[Segment]) -> None:
    for s in segments:
        s.noise.fill(buffer[s.start : s.stop])
