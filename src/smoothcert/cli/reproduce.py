"""smoothcert reproduce"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from smoothcert.cli.nouns import Given, derived
from smoothcert.cli.progress import Meters
from smoothcert.errors import InputError, RunError
from smoothcert.experiments import CLAIMS
from smoothcert.experiments.reproduction import (
    BATCH,
    SEED,
    Part,
    Pub,
    Result,
    Scale,
    Sheet,
    Size,
    Stage,
    estimate,
    write,
)
from smoothcert.experiments.sources import Sources
from smoothcert.leaving import before_leaving
from smoothcert.options import make
from smoothcert.plan import Setting


@derived(found=("engine", "batch"), without=("seed",), sources=Sources, setting=Setting, size=Size)
def reproduce(
    sources: Given,
    setting: Given,
    size: Given,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help=f"The claim: {', '.join(CLAIMS)}.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every claim, one after the other, also where one cannot run.")
    ] = False,
    scale: Annotated[
        Scale, typer.Option(help="smoke: digits, a minute. cpu: CIFAR-10, an hour or two. paper: needs a GPU.")
    ] = Scale.SMOKE,
    pub: Annotated[
        Pub, typer.Option(help="paper: lipschitz-table has the product as the paper defines it, too.")
    ] = Pub.PROVED,
    out: Annotated[Path, typer.Option(help="Folder for numbers, figures and run files.")] = Path("reproduction"),
) -> None:
    """Compute a figure or table of the paper again: numbers as JSON, figures as PNG, SVG, PDF. It resumes when stopped.

    Networks and data are opened before the first draw, and what is missing is listed; then it says how long it will
    take.

    Example: `smoothcert reproduce confidence --scale cpu --data cifar10 --out reproduction`
    """
    if every == (name is not None):
        raise InputError(f"name one claim or pass --all: {', '.join(CLAIMS)}.")
    if name is not None and name not in CLAIMS:
        raise InputError(f"unknown claim {name!r}: choose one of {', '.join(CLAIMS)}.")
    if pub is Pub.PAPER and name not in (None, "lipschitz-table"):
        raise InputError(f"--pub is about the products of lipschitz-table, and {name} has none: leave it out.")
    out.mkdir(parents=True, exist_ok=True)
    fixed = {"engine": "onnx" if scale is Scale.CPU else "torch", "batch": BATCH, "seed": SEED}
    stage = Stage(scale, out, make(Sources, sources), make(Setting, {**fixed, **setting}), make(Size, size), pub)
    run = _Reproduction(stage, one=not every, console=Console())
    run.prepare([name] if name is not None else list(CLAIMS))
    run.compute()
    run.end()


class _Reproduction:
    """Claims checked first, then computed one after the other; unless it is the only one, one that fails is passed."""

    def __init__(self, stage: Stage, one: bool, console: Console) -> None:
        self.stage, self.one, self.console = stage, one, console
        self.ready: list[str] = []
        self.failed: dict[str, str] = {}

    def prepare(self, claims: list[str]) -> None:
        """Opens what each needs, says what is missing, and how long the others take."""
        parts: list[Part] = []
        for claim in claims:
            try:
                parts += CLAIMS[claim].parts(self.stage)
                self.ready.append(claim)
            except InputError as error:
                self.fail(claim, error)
        for claim, reason in self.failed.items():
            self.say(f"{claim} cannot run: {reason}")
        if parts and self.stage.scale is not Scale.SMOKE:
            time = timedelta(seconds=round(estimate(parts)))
            self.say(f"On this machine that takes about {time} h, less what {self.stage.out} keeps.")

    def compute(self) -> None:
        for claim in self.ready:
            try:
                self.compute_one(claim)
            except (InputError, RunError) as error:
                self.fail(claim, error)

    def compute_one(self, claim: str) -> None:
        stopped = partial(_stopped, self.stage.out)
        with Meters() as meters, before_leaving(stopped):
            try:
                result = CLAIMS[claim].compute(replace(self.stage, progress=meters))
            except KeyboardInterrupt:
                meters.stop()
                self.say(stopped())
                raise typer.Exit(1) from None
        _print(result, self.console)
        self.say("Written: " + ", ".join(map(str, write(claim, result, self.stage))) + "\n")

    def end(self) -> None:
        """Says which claims were not computed, and why."""
        for claim, reason in self.failed.items():
            self.say(f"Not done: {claim}. {reason}")
        if self.failed:
            raise typer.Exit(1)

    def fail(self, claim: str, error: InputError | RunError) -> None:
        if self.one:
            raise error
        self.failed[claim] = str(error)

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def _stopped(out: Path) -> str:
    if any(path.is_file() for path in out.rglob("*")):
        return f"Stopped. {out} keeps what was done: run the same command to go on."
    return "Stopped before anything was done: the same command begins again."


def _print(result: Result, console: Console) -> None:
    sheets: list[Sheet] = [result, *result.beside]
    for sheet in sheets:
        table = Table(title=sheet.title, title_justify="left")
        for i, heading in enumerate(sheet.columns):
            table.add_column(heading, justify="left" if i == 0 else "right")
        for row in sheet.rows:
            table.add_row(*row)
        console.print(table, highlight=False)
    for remark in result.remarks:
        console.print(remark, highlight=False, markup=False)
