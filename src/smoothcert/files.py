"""Files that are written: whole or not at all, under names that nobody can have prepared."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO

from smoothcert.errors import InputError

SQLITE = b"SQLite format 3"


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """`replace_whole`, with a sentence where it cannot be done; a run is never replaced."""
    try:
        if path.is_file() and path.open("rb").read(len(SQLITE)) == SQLITE:
            raise InputError(f"{path} is a run file: choose another `out`.")
        replace_whole(path, write)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): choose another path.") from None


def replace_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file completely or leaves what was there; a link is replaced, and not followed.

    `write` is given a new file in the same folder. Synced, it takes the name of the old one.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is no plain file: choose another path.")
    with _written(path, write) as partial:
        os.replace(partial, path)


def create_whole(path: Path, write: Callable[[BinaryIO], object]) -> Callable[[], None]:
    """Writes a file completely under a name that nothing has, or raises FileExistsError; what it returns removes that
    file again, and no other that has come to lie there."""
    with _written(path, write) as partial:
        made = os.lstat(partial)
        os.link(partial, path)

    def remove() -> None:
        with suppress(OSError):
            if os.path.samestat(os.lstat(path), made):
                path.unlink()

    return remove


@contextmanager
def _written(path: Path, write: Callable[[BinaryIO], object]) -> Iterator[Path]:
    """A new file in the folder of the path, synced, to take that name; its own is gone in the end."""
    partial = unpredictable(path)
    try:
        with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666), "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        yield partial
        sync_folder(path.parent)
    finally:
        with suppress(OSError):
            partial.unlink()


def read_plain(path: Path, most: int) -> bytes:
    """What is in a plain file of at most so many bytes. A link is not followed: it may lead to what never ends."""
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        size = f"{most >> 30} GB" if most >> 30 else f"{most >> 20} MB"
        raise OSError(errno.EINVAL, f"no plain file of at most {size}")
    with open(path, "rb", opener=lambda name, how: os.open(name, how | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        return file.read(found.st_size)


def write_text(path: Path, text: str) -> None:
    """Writes a text like that."""
    write_whole(path, lambda file: file.write(text.encode()))


@contextmanager
def as_text(file: BinaryIO) -> Iterator[TextIO]:
    """The file to write text into, its line ends as they are given."""
    text = TextIOWrapper(file, encoding="utf-8", newline="")
    yield text
    text.detach()


def unpredictable(path: Path, name: str = ".smoothcert-{}.part") -> Path:
    """A name beside the path's that nobody can have planted a link at."""
    return path.with_name(name.format(secrets.token_hex(8)))


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder last; not every file system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
