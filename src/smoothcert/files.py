"""Files that are written: whole or not at all, under names that nobody can have prepared."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from smoothcert.errors import InputError

SQLITE = b"SQLite format 3"


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file completely or leaves what was there; a link is replaced, not followed, and a run never.

    `write` is given a new file in the same folder. Synced, it takes the name of the old one.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is no plain file: choose another path.")
    partial = unpredictable(path)
    try:
        if path.is_file() and path.open("rb").read(len(SQLITE)) == SQLITE:
            raise InputError(f"{path} is a run file: choose another `out`.")
        with os.fdopen(create(partial), "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): choose another path.") from None
    finally:
        with suppress(OSError):
            partial.unlink()


def unpredictable(path: Path, ending: str = ".part") -> Path:
    """A name beside the path's that nobody can have planted a link at."""
    return path.with_name(f".smoothcert-{secrets.token_hex(8)}{ending}")


def create(path: Path) -> int:
    """A descriptor of a new file; what is there already is an error, a link too."""
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder last; not every file system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
