"""What classes are called, from a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smoothcert.data.listing import read_listing
from smoothcert.errors import InputError

FORM = "a text file with a name on each line, or JSON: a list of names, or an object from class to name"


def class_names(file: Path, classes: Sequence[str] | None) -> tuple[str, ...]:
    """A name for each class: by what the data call it (a folder, ImageNet's wnid) where the file names that, else by
    its number.

    The file is JSON, a list or an object from class to name (or to a list that ends with the name, as Keras has it);
    or text with a name a line, which may follow the class (`n01440764 tench, Tinca tinca`).
    """
    text = read_listing(file, "file of class names", FORM)
    try:
        listed, called = _from_json(json.loads(text)) if file.suffix.lower() == ".json" else _from_lines(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"The file of class names {file} cannot be read: it is {FORM}.") from error
    if classes is not None and set(classes) <= called.keys():
        return tuple(called[name] for name in classes)
    if not listed or (classes is not None and len(listed) != len(classes)):
        there = "numbers" if classes is None else f"{len(classes)} classes, {classes[0]} the first"
        raise InputError(
            f"The file {file} names {len(listed or called)} classes and the data have {there}: name each of them, or "
            "all in the model's order."
        )
    return tuple(listed)


def _from_lines(text: str) -> tuple[list[str], dict[str, str]]:
    """The names by number, and by the first word of their lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    pairs = [line.split(maxsplit=1) for line in lines]
    return lines, {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _from_json(value: Any) -> tuple[list[str], dict[str, str]]:
    """The names by number, and by class."""
    if isinstance(value, list):
        return [_name(entry) for entry in value], {}
    if not isinstance(value, dict):
        raise ValueError
    called = {key: _name(entry) for key, entry in value.items()}
    called |= {str(entry[0]): str(entry[-1]) for entry in value.values() if isinstance(entry, list)}
    numbers = [str(k) for k in range(len(value))]
    return [called[k] for k in numbers] if value.keys() == set(numbers) else [], called


def _name(entry: Any) -> str:
    if isinstance(entry, list) and entry and all(isinstance(part, str) for part in entry):
        return str(entry[-1])
    if not isinstance(entry, str):
        raise ValueError
    return entry
