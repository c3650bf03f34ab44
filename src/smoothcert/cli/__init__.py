"""The command line: one file a command; each parses, calls and prints."""

from __future__ import annotations

import ast
import atexit
import errno
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Annotated, Any, NoReturn

import typer

from smoothcert.cli.signals import STOPPED, answering_signals, last_act, only_end
from smoothcert.errors import InputError, RunError

COMMANDS = (
    "demo",
    "certify",
    "predict",
    "recertify",
    "attack",
    "lipschitz",
    "train",
    "denoise",
    "show",
    "doctor",
    "merge",
    "export",
    "import",
    "report",
    "gate",
    "reproduce",
)
INTERRUPTED = 130  # how typer ends when a command leaves Ctrl-C to it
PYTHON_NAMES = {
    "diagnose": "`smoothcert doctor RUN --out NEW`",
    "certify_dataset": "`smoothcert certify`",
    "classes": "--classes",
}
"""What messages of the library call by its name in Python, and what it is here."""


def main() -> None:
    """The process `smoothcert`, which has nothing left to interrupt once the command is done."""
    heard = Event()
    atexit.register(last_act, heard)  # first come, last served
    try:
        perform(heard)
    finally:
        only_end(stopped=heard.is_set())


def perform(heard: Event | None = None) -> None:
    """Runs the command; errors are one sentence and exit code 2 (the call was wrong) or 1 (the run failed).

    Only the module of the command that is asked for is imported. The event is set where a signal has come.
    """
    heard = heard or Event()
    debug = "--debug" in sys.argv
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    try:
        with answering_signals(heard):
            _run(arguments, debug, heard)
    except KeyboardInterrupt as interruption:  # one that came in the moments before and after that
        heard.set()
        if debug:
            raise
        _say_stopped(interruption)


def _run(arguments: list[str], debug: bool, heard: Event) -> None:
    asked = next((a for a in arguments if not a.startswith("-")), "")
    try:
        program = build((asked,)) if asked in COMMANDS else build((), listed=COMMANDS)
        with _logs_shown(asked):
            program(args=arguments)
    except BaseException as error:
        if debug:
            raise
        if heard.is_set() or (isinstance(error, SystemExit) and error.code == INTERRUPTED):
            _say_stopped(error)
        if _is_of_memory(error):
            error = RunError("there is not enough memory for that: choose a smaller `batch`, or fewer inputs.")
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            error = RunError("there is no space left where the output goes: make room, and start again.")
        if not isinstance(error, InputError | RunError):
            raise
        print(f"smoothcert: {translated(str(error), asked)}", file=sys.stderr)
        sys.exit(2 if isinstance(error, InputError) else 1)


def _is_of_memory(error: BaseException) -> bool:
    """Torch has no type of its own for memory of the CPU."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in str(error))


def _say_stopped(end: BaseException) -> NoReturn:
    """Whatever came of the interruption, it was one; a command that has answered it itself ends with 1."""
    if not isinstance(end, SystemExit) or end.code in (INTERRUPTED, 0, None):
        print(STOPPED, file=sys.stderr)
    sys.exit(1)


def build(commands: tuple[str, ...] = COMMANDS, listed: tuple[str, ...] = ()) -> typer.Typer:
    """The program with these commands; others may be listed by their first lines, for `--help`."""
    program = typer.Typer(
        name="smoothcert",
        help="Proved robustness radii for any classifier, by randomized smoothing.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    program.callback()(_options)
    for name in commands:
        program.command(name)(_command(name))
    for name in listed:
        program.command(name)(_first_lines(name))
    return program


def translated(message: str, command: str) -> str:
    """A message of the library as a user of the command line needs it: arguments become options.

    >>> translated("a run file exists: choose another `out`.", "certify")
    'a run file exists: choose another --out.'
    """
    from smoothcert.options import options_of
    from smoothcert.plan import Classifier, Question, Selection, Setting

    nouns = (Classifier, Question, Setting, Selection)
    flags = {name: f"--{option.flag}" for noun in nouns for name, option in options_of(noun).items()}
    flags |= PYTHON_NAMES | (_flags(command) if command in COMMANDS else {})
    if not message.startswith("`width` says nothing"):  # there it is that of margin votes, elsewhere of adaptive draws
        flags["width"] = "--until-width"
    return re.sub(r"`(\w+)`", lambda name: flags.get(name[1], name[0]), message)


@lru_cache
def _flags(command: str) -> dict[str, str]:
    group: Any = typer.main.get_command(build((command,)))
    return {p.name: p.opts[0] for p in group.commands[command].params if p.opts[0].startswith("--")}


def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error, with any command.")] = False,
) -> None:
    """Proved robustness radii for any classifier, by randomized smoothing."""


def _module(name: str) -> str:
    return "import_" if name == "import" else name


def _command(name: str) -> Callable[..., Any]:
    module = import_module(f"smoothcert.cli.{_module(name)}")
    command: Callable[..., Any] = getattr(module, _module(name))

    @wraps(command)
    def ends_by_itself(*given: Any, **named: Any) -> Any:
        """No command of ours ends the process: a model that does has not done what was asked."""
        try:
            return command(*given, **named)
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError):  # rich's answer to a reader that has read enough
                raise
            raise RunError(
                f"the model or the data called sys.exit({end.code!r}): take that out of it, and start again."
            ) from end

    return ends_by_itself


def _first_lines(name: str) -> Callable[..., Any]:
    """Stands for a command in `--help`: its docstring is read from its file, which is not imported."""
    tree = ast.parse((Path(__file__).parent / f"{_module(name)}.py").read_text(encoding="utf-8"))
    found = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == _module(name))

    def unloaded() -> None: ...

    unloaded.__doc__ = ast.get_docstring(next(found))
    return unloaded


@contextmanager
def _logs_shown(command: str) -> Iterator[None]:
    """What the library has to say stands on standard error, a warning as such, with the options of the command."""
    from smoothcert.cli.progress import LogLines

    logger, lines = logging.getLogger("smoothcert"), LogLines(lambda text: translated(text, command))
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.setLevel(logging.NOTSET)


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(name)
    globals()["app"] = build()
    return globals()["app"]
