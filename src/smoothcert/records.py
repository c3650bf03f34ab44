"""Small frozen types written down as JSON values, and read again without trust."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Noun = TypeVar("Noun")
KIND = "kind"


def flat(noun: Any) -> dict[str, Any]:
    """All values of a noun by name, those of its kinds among them; a named kind stands under its field by its name."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(noun):
        value = getattr(noun, field.name)
        if "aside" in field.metadata:
            continue
        if "kinds" not in field.metadata:
            values[field.name] = value
            continue
        if "option" in field.metadata:
            values[field.name] = value.name
        values |= flat(value)
    return values


def record(noun: Any) -> dict[str, Any]:
    """The noun as JSON values; a kind says which one it is."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            fields = (f for f in dataclasses.fields(value) if "aside" not in f.metadata)
            inner = {f.name: plain(getattr(value, f.name)) for f in fields}
            kind = getattr(type(value), "name", None)
            return inner if kind is None else {KIND: kind, **inner}
        return value

    done: dict[str, Any] = plain(noun)
    return done


def restore(noun: type[Noun], values: Any) -> Noun:
    """The noun that `record` has written, fields that it does not know left out; ValueError where it cannot be one."""
    if not isinstance(values, dict):
        raise ValueError("no record")
    hints, found = get_type_hints(noun), {}
    for field in dataclasses.fields(noun):  # type: ignore[arg-type]
        if field.name not in values or "aside" in field.metadata:
            if field.default is field.default_factory is dataclasses.MISSING:
                raise ValueError(f"no {field.name}")
            continue
        value = values[field.name]
        inner = list(_nouns(hints[field.name]))
        if inner and isinstance(value, dict):
            kinds, name = {getattr(kind, "name", None): kind for kind in inner}, value.get(KIND)
            value = restore(kinds[name], value) if isinstance(name, str | None) and name in kinds else None
        elif isinstance(value, list):
            value = tuple(value)
        if not _is_of(value, hints[field.name]):
            raise ValueError(f"{field.name} of another type")
        found[field.name] = value
    return noun(**found)


def _nouns(hint: Any) -> Iterator[type]:
    for entry in get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,):
        if dataclasses.is_dataclass(entry):
            yield entry  # type: ignore[misc]


def _is_of(value: Any, kind: Any) -> bool:
    """Is it of the annotated type? Numbers are finite."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        return any(_is_of(value, entry) for entry in inner)
    if origin is tuple:
        long = inner[-1] is ... or len(inner) == len(value if isinstance(value, tuple) else ())
        return isinstance(value, tuple) and long and all(_is_of(entry, inner[0]) for entry in value)
    if origin is dict:
        return isinstance(value, dict) and all(_is_of(entry, inner[1]) for entry in value.values())
    if kind is float:
        return is_number(value)
    if kind is Any:
        return True
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def is_number(value: Any) -> bool:
    """An int or a float that a float can hold."""
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64
    return whole or (isinstance(value, float) and math.isfinite(value))
