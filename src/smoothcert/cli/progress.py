"""Progress of a run: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

LINE_SECONDS = 10.0
STDERR = Console(stderr=True)


class Meter:
    """The share that is done, the rate of draws, or of another unit, and the time left, on standard error."""

    def __init__(self, what: str, unit: str = "draws") -> None:
        self.what, self.unit, self.started, self.printed = what, unit, monotonic(), monotonic()
        self.done_before = self.done = 0.0
        self.end = self.started
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:3.0f} %  {task.fields[rate]}"),
            console=STDERR,
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self.task: TaskID = self.bar.add_task(what, total=1.0, rate="")

    def __enter__(self) -> Meter:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def __call__(self, draws: int, done: float) -> None:
        now = monotonic()
        if draws == 0:
            self.done_before, self.started = done, now
            return
        elapsed = max(now - self.started, 1e-3)
        text = f"{draws / elapsed:,.0f} {self.unit}/s"
        if done > max(self.done, self.done_before):
            self.done, self.end = done, now + elapsed * (1 - done) / (done - self.done_before)
        if self.done > self.done_before:  # while one input takes long, what is left runs down to nothing, not up
            text += f", {timedelta(seconds=round(max(self.end - now, 0.0)))} left"
        self.bar.update(self.task, completed=done, rate=text)
        if self.bar.disable and now - self.printed > LINE_SECONDS:
            self.printed = now
            print(f"{self.what}: {done:.0%} done, {draws:,} {self.unit}, {text}", file=sys.stderr, flush=True)


class LogLines(logging.Handler):
    """What the library logs, a line each on standard error, above the bar where there is one."""

    def __init__(self, translate: Callable[[str], str]) -> None:
        super().__init__()
        self.translate = translate

    def emit(self, record: logging.LogRecord) -> None:
        text = self.translate(record.getMessage())
        STDERR.print(
            f"warning: {text}" if record.levelno >= logging.WARNING else text,
            highlight=False,
            markup=False,
            soft_wrap=not STDERR.is_terminal,
        )


class Meters:
    """One meter after the other, each for a part that has a name."""

    def __init__(self) -> None:
        self.meter: Meter | None = None

    def __enter__(self) -> Meters:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __call__(self, what: str, count: int, done: float, unit: str = "draws") -> None:
        if self.meter is None or self.meter.what != what:
            self.stop()
            self.meter = Meter(what, unit).__enter__()
        self.meter(count, done)

    def stop(self) -> None:
        if self.meter is not None:
            self.meter.bar.stop()
