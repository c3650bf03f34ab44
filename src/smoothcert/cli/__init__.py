"""The command line: one file a command; each parses, calls and prints."""

from __future__ import annotations

import logging
import signal
import sys
from types import FrameType
from typing import Annotated

import typer

from smoothcert.cli.attack import attack
from smoothcert.cli.certify import certify
from smoothcert.cli.demo import demo
from smoothcert.cli.doctor import doctor
from smoothcert.cli.export import export
from smoothcert.cli.import_ import import_
from smoothcert.cli.lipschitz import lipschitz
from smoothcert.cli.merge import merge
from smoothcert.cli.predict import predict
from smoothcert.cli.recertify import recertify
from smoothcert.cli.report import report
from smoothcert.cli.reproduce import reproduce
from smoothcert.cli.show import show
from smoothcert.cli.train import train
from smoothcert.errors import InputError, RunError

INTERRUPTED = 130  # how typer ends when a command leaves Ctrl-C to it


class Warnings(logging.Handler):
    """What the library logs, a line each on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"warning: {record.getMessage()}", file=sys.stderr)


WARNINGS = Warnings()  # one: a logger takes it once, however often the command line is called

app = typer.Typer(
    name="smoothcert",
    help="Proved robustness radii for any classifier, by randomized smoothing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("demo")(demo)
app.command("certify")(certify)
app.command("predict")(predict)
app.command("recertify")(recertify)
app.command("attack")(attack)
app.command("lipschitz")(lipschitz)
app.command("train")(train)
app.command("show")(show)
app.command("doctor")(doctor)
app.command("merge")(merge)
app.command("export")(export)
app.command("import")(import_)
app.command("report")(report)
app.command("reproduce")(reproduce)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error, with any command.")] = False,
) -> None:
    """Proved robustness radii for any classifier, by randomized smoothing."""


def main() -> None:
    """Runs the command; errors are one sentence and exit code 2 (the call was wrong) or 1 (the run failed)."""
    debug = "--debug" in sys.argv
    signal.signal(signal.SIGTERM, _interrupt)
    logging.getLogger("smoothcert").addHandler(WARNINGS)
    try:
        app(args=[a for a in sys.argv[1:] if a != "--debug"])
    except (InputError, RunError) as error:
        if debug:
            raise
        print(f"smoothcert: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, InputError) else 1)
    except SystemExit as end:
        if end.code != INTERRUPTED:
            raise
        print("smoothcert: stopped.", file=sys.stderr)
        sys.exit(1)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
