"""Small text files that go with a data set: labels, classes, names."""

from __future__ import annotations

from pathlib import Path

from smoothcert.errors import InputError
from smoothcert.files import read_plain

_MOST_BYTES = 1 << 26


def read_listing(file: Path, what: str, form: str) -> str:
    """The text of a file, or a sentence that says what it should have been."""
    try:
        return read_plain(file.resolve(), _MOST_BYTES).decode("utf-8-sig")
    except (OSError, RuntimeError, UnicodeDecodeError) as error:  # RuntimeError: a link that leads to itself
        most = f"{_MOST_BYTES >> 20} MB"
        raise InputError(f"The {what} {file} cannot be read: it is {form}, a plain file of at most {most}.") from error
