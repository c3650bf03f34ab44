"""Options: the fields of small frozen types, each with its default and its sentence of help, written once.

From them come the keywords of Python calls and the options of commands; `records` writes them down. A field may hold
one of several kinds, each a type with options of its own: `choice` lets what is given decide which (radii to test, or
a fixed number of draws), `named` a name. What the chosen kind does not have cannot be said.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, replace
from typing import Any, TypeVar, get_type_hints

from smoothcert.errors import InputError

Noun = TypeVar("Noun")
Function = TypeVar("Function", bound=Callable[..., Any])
AUTO = "auto"


@dataclass(frozen=True)
class Option:
    """One option: `flag` is its name on the command line, `parse` reads it there where its type alone does not.

    It is `part` of a kind that the noun may hold, or the noun's own.
    """

    name: str
    type: Any
    default: Any
    help: str
    panel: str | None
    flag: str
    parse: Callable[[str], Any] | None
    part: bool = False

    @property
    def required(self) -> bool:
        """Must it be given? What a kind needs may be left out together with the kind."""
        return self.default is MISSING and not self.part


def option(
    default: Any = MISSING,
    *,
    help: str,
    panel: str | None = None,
    flag: str | None = None,
    parse: Callable[[str], Any] | None = None,
    recorded: bool = True,
) -> Any:
    """A field that users may set; part of a record unless it says otherwise."""
    about = {"option": {"help": help, "panel": panel, "flag": flag, "parse": parse}}
    return dataclasses.field(default=default, metadata=about if recorded else {**about, "aside": True})


def choice(*kinds: type) -> Any:
    """A field that holds one of these types: the one whose required option is given, or the first of them."""
    return dataclasses.field(default=kinds[0](), metadata={"kinds": kinds})


def named(*kinds: type, help: str, panel: str | None = None) -> Any:
    """A field that holds one of these types, by its `name`; "auto" is the first of them."""
    about = {"help": help, "panel": panel, "flag": None, "parse": None}
    return dataclasses.field(default=kinds[0](), metadata={"kinds": kinds, "option": about})


def aside() -> Any:
    """A field that is no option, and no part of a record."""
    return dataclasses.field(default=None, metadata={"aside": True})


def options_of(noun: type) -> dict[str, Option]:
    """The options of a type and of all kinds that its fields may hold, by name."""
    found: dict[str, Option] = {}
    hints = get_type_hints(noun)
    for field in dataclasses.fields(noun):
        about = field.metadata.get("option")
        if about is not None:
            kinds = field.metadata.get("kinds")
            found[field.name] = Option(
                field.name,
                str if kinds else hints[field.name],
                AUTO if kinds else field.default,
                about["help"],
                about["panel"],
                about["flag"] or field.name.replace("_", "-"),
                about["parse"],
            )
        for kind in field.metadata.get("kinds", ()):
            found |= {name: found.get(name, replace(entry, part=True)) for name, entry in options_of(kind).items()}
    return found


def make(noun: type[Noun], given: Mapping[str, Any]) -> Noun:
    """The noun with the options that are given; None is not given, and what says nothing is refused."""
    said = {name: value for name, value in given.items() if value is not None}
    whole = {f.name for f in dataclasses.fields(noun) if "kinds" in f.metadata}  # type: ignore[arg-type]
    unknown = said.keys() - options_of(noun).keys() - whole
    if unknown:
        raise InputError(f"there is no option `{min(unknown)}`: choose from {', '.join(options_of(noun))}.")
    values: dict[str, Any] = {}
    for field in dataclasses.fields(noun):  # type: ignore[arg-type]
        if "kinds" in field.metadata:
            values[field.name] = _chosen(field, said)
        elif field.name in said:
            values[field.name] = said[field.name]
        elif field.default is MISSING:
            raise InputError(f"`{field.name}` is missing: pass it.")
    return noun(**values)


def number_or_name(text: str) -> float | str:
    """A number where it is one: reads an option that may be either."""
    try:
        return float(text)
    except ValueError:
        return text


def keep(noun: object, **values: Any) -> None:
    """Sets fields of a frozen noun that is being made: it keeps what its checks return, plain numbers."""
    for name, value in values.items():
        object.__setattr__(noun, name, value)


def split(given: Mapping[str, Any], noun: type, rest: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """What belongs to the noun, and the rest, which is for another."""
    own = {*options_of(noun), *(f.name for f in dataclasses.fields(noun))} - set(options_of(rest))
    return (
        {name: value for name, value in given.items() if name in own},
        {name: value for name, value in given.items() if name not in own},
    )


def _chosen(field: Field[Any], said: Mapping[str, Any]) -> Any:
    """The value of a field that holds one of several kinds."""
    kinds: tuple[type, ...] = field.metadata["kinds"]
    asked = said.get(field.name)
    if isinstance(asked, kinds) or (asked is not None and "option" not in field.metadata):
        for name in (name for kind in kinds for name in options_of(kind) if name in said):
            raise InputError(f"`{name}` is part of `{field.name}`, which is given whole: leave one of them out.")
        return asked
    kind = _by_name(field, asked) if "option" in field.metadata else _by_what_is_given(field, said)
    own = options_of(kind)
    _refuse_others(field, kind, said, set(own))
    return make(kind, {name: said[name] for name in own if name in said})


def _by_name(field: Field[Any], name: Any) -> type:
    kinds: dict[str, type] = {kind.name: kind for kind in field.metadata["kinds"]}
    if name is None or name == AUTO:
        return next(iter(kinds.values()))
    if not isinstance(name, str) or name not in kinds:
        raise InputError(f"unknown {field.name} {name!r}: choose one of {', '.join(kinds)}.")
    return kinds[name]


def _by_what_is_given(field: Field[Any], said: Mapping[str, Any]) -> type:
    kinds: tuple[type, ...] = field.metadata["kinds"]
    asked = [kind for kind in kinds if any(name in said for name in _needs(kind))]
    if len(asked) > 1:
        both = " or for ".join(f"`{name}`" for kind in asked for name in _needs(kind))
        raise InputError(f"ask either for {both}, not both.")
    return asked[0] if asked else kinds[0]


def _refuse_others(field: Field[Any], kind: type, said: Mapping[str, Any], own: set[str]) -> None:
    """What only other kinds have is not to be said of this one."""
    for other in field.metadata["kinds"]:
        for name in options_of(other):
            if name not in said or name in own:
                continue
            if "option" in field.metadata:
                raise InputError(f"`{name}` says nothing about {kind.name} {field.name}: leave it out.")  # type: ignore[attr-defined]
            needed, has = _needs(kind), [k for k in field.metadata["kinds"] if name in options_of(k)]
            words = needed or [n for k in has for n in _needs(k)]
            joined = " or ".join(f"`{n}`" for n in words)
            raise InputError(f"`{name}` says nothing {'with' if needed else 'without'} {joined}: leave it out.")


def _needs(kind: type) -> list[str]:
    return [name for name, entry in options_of(kind).items() if entry.required]


def _default(entry: Option) -> Any:
    """What a signature shows: nothing of what must be given, None of what a kind needs."""
    return inspect.Parameter.empty if entry.required else None if entry.default is MISSING else entry.default


def keywords(*nouns: type) -> Callable[[Function], Function]:
    """Gives a function that takes `**given` the signature that these types make of it, and tells each keyword."""

    def derive(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        entries = {name: entry for noun in nouns for name, entry in options_of(noun).items()}
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_default(entry),
                annotation=entry.type,
            )
            for name, entry in entries.items()
            if name not in signature.parameters
        ]
        function.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        told = "\n".join(f"    {p.name}: {entries[p.name].help}" for p in added)
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nKeyword Args:\n{told}\n".lstrip()
        return function

    return derive
