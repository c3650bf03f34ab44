"""Options of commands made from the fields of nouns: each default and each sentence of help is written there."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import MISSING, replace
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

import typer

from smoothcert.options import Option, options_of

Given = dict[str, Any]
"""The options of a noun that were given, by name."""


def derived(
    *, found: Collection[str] = (), without: Collection[str] = (), maybe: Collection[str] = (), **nouns: type
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replaces the parameters of a command that are named after nouns by the options of these nouns.

    The command gets for each noun what was given of it; `found` are those that it finds out itself unless given,
    `without` those that it does not have. Nouns in `maybe` are not there unless one of their options is given.
    """

    def derive(command: Callable[..., None]) -> Callable[..., None]:
        options = {
            noun: {
                name: replace(entry, part=entry.part or noun in maybe)
                for name, entry in options_of(kind).items()
                if name not in without
            }
            for noun, kind in nouns.items()
        }
        named = _named(options)
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name not in nouns]
        made = [_parameter(options[noun][name], name in found, named[noun, name]) for noun, name in named]
        arguments = [p for p in own if p.default is inspect.Parameter.empty]
        parameters = [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for p in (*arguments, *made, *(p for p in own if p not in arguments))
        ]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            for noun, entries in options.items():
                given = {name: values.pop(named[noun, name]) for name in entries}
                values[noun] = {name: _read(entries[name], v) for name, v in given.items() if v is not None}
            command(**values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return derive


def _named(options: dict[str, dict[str, Option]]) -> dict[tuple[str, str], str]:
    """What the parameter of each noun's option is called: by its name, or by its flag where another noun's has it."""
    named: dict[tuple[str, str], str] = {}
    for noun, entries in options.items():
        for name, entry in entries.items():
            named[noun, name] = entry.flag.replace("-", "_") if name in named.values() else name
    return named


def _parameter(option: Option, found: bool, name: str) -> inspect.Parameter:
    """An option that nobody has given is None where that says something: of a part of the noun, or what is found."""
    left_open = option.part or found or option.default is None
    required = option.required and not found
    type_ = str if option.parse else _plain(option.type)
    usual = "" if option.default in (MISSING, None) or not left_open or found else f" ({_shown(option.default)})"
    info = typer.Option(
        f"--{option.flag}", help=option.help + usual, rich_help_panel=option.panel, show_default=not left_open
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else None if left_open else option.default,
        annotation=Annotated[type_ | None if left_open else type_, info],
    )


def _plain(hint: Any) -> Any:
    """The type of an option without the None that says that it was left out."""
    inner = [entry for entry in get_args(hint) if entry is not type(None)]
    return inner[0] if get_origin(hint) is UnionType and len(inner) == 1 else hint


def _shown(default: Any) -> str:
    if isinstance(default, int):
        return f"{default:,}".replace(",", " ")
    return f"{default:g}" if isinstance(default, float) else str(default)


def _read(option: Option, value: Any) -> Any:
    return option.parse(value) if option.parse and isinstance(value, str) else value
