"""The command reference as Markdown, made from the commands themselves; MkDocs runs this file as a hook."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Any

import typer

PLACE = "<!-- commands -->"
"""Where a page wants the reference."""


def on_page_markdown(markdown: str, **page: Any) -> str:
    """What MkDocs calls for every page before it is rendered."""
    if PLACE not in markdown:
        return markdown
    from smoothcert.cli import app

    return markdown.replace(PLACE, command_reference(app))


def command_reference(app: typer.Typer) -> str:
    """A section for each command: what it does, its example, its arguments and options as `--help` prints them."""
    command = typer.main.get_command(app)
    return "\n\n".join(_sections(command, typer.Context(command, info_name=app.info.name)))


def _sections(command: Any, context: Any) -> Iterator[str]:
    yield "\n\n".join([f"## {context.command_path}", _description(command.help or ""), *_tables(command, context)])
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from _sections(child, typer.Context(child, info_name=name, parent=context))


def _description(text: str) -> str:
    """The docstring, its examples as blocks of code."""
    return "\n\n".join(map(_paragraph, re.split(r"\n\s*\n", text.strip())))


def _paragraph(text: str) -> str:
    text = " ".join(text.split())
    example = re.fullmatch(r"Example: `([^`]*)`", text)
    return f"    {example[1]}" if example else plain(text)


def _tables(command: Any, context: Any) -> Iterator[str]:
    """A table for each group: the arguments, the options, the panels of `--help` in its order."""
    groups: dict[str, list[Any]] = {"arguments": [], "options": []}
    for parameter in command.params:
        if not parameter.hidden:
            groups.setdefault(_group(parameter), []).append(parameter)
    for group, members in groups.items():
        if members:
            rows = [_row(*p.get_help_record(context)) for p in members]
            yield "\n".join([f"| {group} | | default |", "|---|---|---|", *rows])


def _group(parameter: Any) -> str:
    return getattr(parameter, "rich_help_panel", None) or f"{parameter.param_type_name}s"


def _row(name: str, text: str) -> str:
    text, _, rest = text.partition("  [")
    default = rest.removesuffix("]").removeprefix("default: ")
    return f"| `{name}` | {plain(text)} | {plain(default)} |"


def plain(text: str) -> str:
    """The text with all that Markdown or HTML would take for markup escaped; `code` in backticks stays code.

    >>> print(plain("a|b <c> my_model *d* `x_y`"))
    a\\|b &lt;c&gt; my\\_model \\*d\\* `x_y`
    """
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([\\*_|\[\]])", r"\\\1", escape(part, quote=False)) for part in parts[::2]]
    return "".join(parts)
