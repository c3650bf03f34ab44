"""Small text files that go with a data set: labels, classes, names."""

from __future__ import annotations

from pathlib import Path

from smoothcert.errors import InputError

_MOST_BYTES = 1 << 26


def read_listing(file: Path, what: str, form: str) -> str:
    """The text of a file, or a sentence that says what it should have been."""
    try:
        if file.stat().st_size <= _MOST_BYTES:
            return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The {what} {file} cannot be read: it is {form}.") from error
    raise InputError(f"The {what} {file} is larger than {_MOST_BYTES >> 20} MB: it is {form}.")
