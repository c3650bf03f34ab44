"""What a cluster costs: two workers against one process at equal threads, and the driver's work a block.

    python benchmarks/cluster.py [--rounds 5] [--json FILE]

A CIFAR ResNet-20 on the CPU, batch 100: one process with one thread, one process with two, two workers with one each,
in turn, so that all see the same machine; rates are medians. Then models that cost nothing show what is left: the
time a block, and the processor time of the driver, which schedules, receives and writes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert import Cluster, SmoothedClassifier
from smoothcert.models import build
from smoothcert.plan import Labels
from smoothcert.sampling.blocks import BLOCK, Block, Input, Phase, blocks_of
from smoothcert.sampling.engines import open_engine
from smoothcert.sampling.executor import Executor, Job
from smoothcert.sampling.noise import open_noise
from smoothcert.scale.workers import Workers

WORKERS = 2


@dataclass(frozen=True)
class Result:
    """Draws a second, and seconds of the driver's processor."""

    one_thread: float
    two_threads: float
    two_workers: float
    against_two_threads: float
    against_twice_one_thread: float
    seconds_a_block_here: float
    seconds_a_block_cluster: float
    driver_seconds_a_block: float
    driver_seconds_a_chunk_imagenet: float
    file_bytes_a_block: float


def inputs(position: int) -> Input:
    return Input(str(position), np.full((3, 32, 32), 0.1 * position, dtype=np.float32))


def wanted(blocks: int, round: int) -> Iterator[Block]:
    """So many blocks of eight inputs, others in each round."""
    start = round * blocks // 8
    return (b for i in range(8) for b in blocks_of(i, Phase.COUNT, BLOCK * (start + blocks // 8), start=start))


def rates(rounds: int, blocks: int) -> tuple[float, float, float]:
    """Median draws a second of one process with one and with two threads, and of two workers."""
    torch.manual_seed(0)
    model = build("cifar_resnet20").eval()
    job = Job(open_noise("gaussian", 0.5, None), num_classes=10, seed=0, batch=100, votes=Labels())
    here = Executor(open_engine(model), inputs, job)
    seconds: dict[str, list[float]] = {"one": [], "two": [], "cluster": []}
    with Workers(Cluster(workers=WORKERS), model) as workers:
        cluster = workers.executor(inputs, job)
        for round in range(rounds + 1):
            for name, executor, threads in (("one", here, 1), ("two", here, 2), ("cluster", cluster, 1)):
                torch.set_num_threads(threads)
                start = perf_counter()
                votes = sum(v.draws for v in executor.run(wanted(blocks, round)))
                assert votes == BLOCK * (blocks // 8) * 8
                if round:  # the first one warms up
                    seconds[name].append((perf_counter() - start) / votes)
    one, two, both = (1 / statistics.median(s) for s in seconds.values())
    return one, two, both


def free(batch: NDArray[np.float32]) -> NDArray[np.int64]:
    """A model that costs nothing, with votes for several classes."""
    return np.digitize(batch.reshape(len(batch), -1)[:, 0], [-1.0, -0.3, 0.3, 1.0])


class Blank:
    """Inputs of a shape."""

    def __init__(self, shape: tuple[int, ...], number: int) -> None:
        self.shape, self.number = shape, number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, row: int) -> tuple[NDArray[np.float32], int]:
        return np.zeros(self.shape, dtype=np.float32), 0


class Clock:
    """Time and processor time a block, between the first votes and the last."""

    def __init__(self) -> None:
        self.marks: list[tuple[int, float, float]] = []

    def __call__(self, draws: int, done: float) -> None:
        if draws:
            mark = draws, perf_counter(), process_time()
            self.marks = [self.marks[0], mark] if self.marks else [mark]

    @property
    def a_block(self) -> tuple[float, float]:
        (draws, wall, busy), (draws_now, wall_now, busy_now) = self.marks
        blocks = (draws_now - draws) / BLOCK
        return (wall_now - wall) / blocks, (busy_now - busy) / blocks


def scheduling(shape: tuple[int, ...], number: int, n: int, cluster: Cluster | None) -> tuple[float, float, float]:
    """Seconds a block, those of the driver's processor, and bytes of the run file a block; the model costs nothing."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.smoothcert"
        smoothed = SmoothedClassifier(free, sigma=1.0, num_classes=10, batch=100, seed=0)
        data = Blank(shape, number)
        smoothed.certify_dataset(data, out=path, n=n, images=False, cluster=cluster, on_progress=clock)
        size = path.stat().st_size / (number * (n + 100) / BLOCK)
    return *clock.a_block, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=160, help="blocks a round, a multiple of 8")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    one, two, both = rates(args.rounds, args.blocks)
    torch.set_num_threads(1)
    cluster = Cluster(workers=WORKERS)
    here, _, _ = scheduling((1, 4, 4), 20, 100_000, None)
    there, driver, size = scheduling((1, 4, 4), 20, 100_000, cluster)
    _, large, _ = scheduling((3, 224, 224), 1, 10_000, cluster)
    result = Result(one, two, both, both / two, both / (2 * one), here, there, driver, large, size)
    print(f"draws/s    1 process, 1 thread {one:,.0f}   1 process, 2 threads {two:,.0f}   2 workers {both:,.0f}")
    print(f"2 workers  {both / two:.2f} of 2 threads   {both / (2 * one):.2f} of twice 1 thread")
    print(f"a block of a model that costs nothing  {1e6 * here:.0f} µs here   {1e6 * there:.0f} µs on 2 workers")
    print(f"the driver's processor  {1e6 * driver:.0f} µs a block: at most {1 / driver:,.0f} blocks/s", end="")
    print(f"   {1e3 * large:.1f} ms a chunk with a 224 × 224 image")
    print(f"the run file  {size:.1f} bytes a block")
    if args.json:
        args.json.write_text(json.dumps(asdict(result), indent=2) + "\n")


if __name__ == "__main__":
    main()
