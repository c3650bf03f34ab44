"""What a run will take, told before it starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter

from smoothcert.plan import FixedN, Plan
from smoothcert.plan.draws import TYPICAL
from smoothcert.sampling.blocks import BLOCK, Block, Input, Phase
from smoothcert.sampling.choice import ThisProcess
from smoothcert.sampling.executor import Job
from smoothcert.sampling.machine import Machine
from smoothcert.text import counted


@dataclass(frozen=True)
class Cost:
    """Draws that are expected, the most that there may be, and how many there are in a second where that is known.

    `by_radii` are those that a question for a few radii would take instead, where the question is another.
    """

    inputs: int
    draws: int
    most: int
    rate: float | None = None
    by_radii: int | None = None

    @classmethod
    def of(cls, plan: Plan, rate: float | None) -> Cost:
        """The cost of what is asked."""
        inputs, n0, draws = plan.selection.total, plan.question.n0, plan.question.draws
        by_radii = inputs * (n0 + min(TYPICAL, draws.most)) if isinstance(draws, FixedN) else None
        return cls(inputs, inputs * (n0 + draws.expected), inputs * (n0 + draws.most), rate, by_radii)

    @property
    def seconds(self) -> float | None:
        return None if self.rate is None else self.draws / self.rate

    def __str__(self) -> str:
        bound = f" (at most {self.most:,})" if self.most > self.draws else ""
        said = f"{counted(self.inputs, 'input')}: about {self.draws:,} draws{bound}"
        if self.rate is None:
            return said
        instead = "" if self.by_radii is None else f"; for a few `radii` alone about {_time(self.by_radii / self.rate)}"
        return f"{said}, at {self.rate:,.0f} a second {_time(self.draws / self.rate)}{instead}"


def draws_per_second(machine: Machine, inputs: Callable[[int], Input], job: Job) -> float | None:
    """Of full batches of the first input, the second time; not known of workers, each of which has its own speed."""
    if not isinstance(machine, ThisProcess):
        return None
    blocks = [Block(0, Phase.CLEAN, i) for i in range(-(-job.batch * machine.engine.lanes // BLOCK))]
    rows = -(-len(blocks) * BLOCK // job.batch) * job.batch  # the last batch is padded
    executor = machine.executor(inputs, job)
    for _ in range(2):
        start = perf_counter()
        for _ in executor.run(blocks):
            """Only the time counts."""
        seconds = perf_counter() - start
    return rows / seconds


def _time(seconds: float) -> str:
    """
    >>> _time(0.2), _time(5_400)
    ('1 s', '1:30:00 h')
    """
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    return f"{timedelta(seconds=round(seconds))} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
