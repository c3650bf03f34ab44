"""smoothcert gate"""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from smoothcert.cli import arguments as arg
from smoothcert.cli.nouns import Given, derived
from smoothcert.options import make
from smoothcert.report.gate import Gate
from smoothcert.store import PATIENCE, open_run


@derived(asked=Gate)
def gate(
    run: arg.RunPath,
    asked: Given,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
    patience: arg.Patience = PATIENCE,
) -> None:
    """Say whether enough inputs are certified: exit code 0 if so, 1 if not, for continuous integration.

    Example: `smoothcert gate demo.smoothcert --radius 0.25 --at-least 0.6 --confidence 0.95`
    """
    verdict = make(Gate, asked).judge(open_run(run, patience=patience))
    print(json.dumps(dataclasses.asdict(verdict)) if as_json else verdict)
    raise typer.Exit(0 if verdict.passed else 1)
