"""Progress of a run: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from datetime import timedelta
from time import monotonic
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

LINE_SECONDS = 10.0


class Meter:
    """Draws done and wanted, their rate and the time left, on standard error."""

    def __init__(self, what: str) -> None:
        self.what, self.started, self.printed = what, monotonic(), monotonic()
        self.resumed_at: int | None = None
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:3.0f} %  {task.fields[rate]}"),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self.task: TaskID = self.bar.add_task(what, total=None, rate="")

    def __enter__(self) -> Meter:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def __call__(self, done: int, wanted: int) -> None:
        now = monotonic()
        if self.resumed_at is None:
            self.resumed_at, self.started = done, now
        if done == self.resumed_at:
            return
        rate = (done - self.resumed_at) / max(now - self.started, 1e-3)
        left = timedelta(seconds=round((wanted - done) / rate))
        text = f"{rate:,.0f} draws/s, {left} left"
        self.bar.update(self.task, completed=done, total=wanted, rate=text)
        if self.bar.disable and now - self.printed > LINE_SECONDS:
            self.printed = now
            print(f"{self.what}: {done:,} of {wanted:,} draws, {text}", file=sys.stderr, flush=True)
