"""The one writer of a run file, who holds the file itself and not its name."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import stat
import struct
from contextlib import suppress
from pathlib import Path

from smoothcert.errors import InputError, RunError
from smoothcert.store import schema
from smoothcert.store.opening import Header, check_companions, index_of, log_of, parted

LOCKED_BYTE = 1 << 60
"""Far from the bytes that SQLite locks."""

File = tuple[int, int]
_held_here: set[File] = set()
"""What this process writes: opening one of them again, and closing it, would end SQLite's locks on it."""


class Hold:
    """A file by device and inode, locked; under which name a second writer comes makes no difference."""

    def __init__(self, path: Path) -> None:
        """Makes the file where there is none. A link is followed to a run, but makes none."""
        self.path = path.resolve()
        check_place(path)
        made = not self.path.exists()
        if not made and _file(self.path.stat()) in _held_here:
            raise RunError(_busy(path))
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise InputError(
                f"{path} cannot be opened ({error.strerror}): check the folder and its permissions."
            ) from None
        self.file = _file(os.fstat(self._descriptor))
        self._companions: dict[Path, File] = {}
        self._made_by_us: tuple[Path, ...] = (self.path,) if made else ()
        _held_here.add(self.file)
        try:
            self._lock(path)
            self._check(path)
            self._made_by_us += (log_of(self.path), index_of(self.path)) if made else ()
        except BaseException:
            self.release(used=False)
            raise

    def _lock(self, path: Path) -> None:
        """A lock of the open file: one of the process would go whenever SQLite gives up its own. Linux only."""
        if not hasattr(fcntl, "F_OFD_SETLK"):
            return
        try:
            one_byte = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, LOCKED_BYTE, 1, 0)
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, one_byte)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise RunError(_busy(path)) from None
            raise InputError(
                f"{path} cannot be locked ({error.strerror}): keep run files on a disk of this machine."
            ) from None

    def _check(self, path: Path) -> None:
        """SQLite would write over a log that belongs to another file, and forget one that is elsewhere."""
        check_companions(self.path)
        header, log = Header(os.pread(self._descriptor, 72, 0)), log_of(self.path)
        if not header:
            _refuse_stray(log)
        if header.parted and not log.exists():
            raise RunError(parted(path))

    def remember_companions(self) -> None:
        """Notes which files SQLite has made beside this one."""
        self._companions = {p: _file(p.stat()) for p in (log_of(self.path), index_of(self.path)) if p.exists()}

    @property
    def in_place(self) -> bool:
        """Does the file still have the name under which it was opened?"""
        return _is(self.path, self.file)

    @property
    def named(self) -> bool:
        """Does it have any name?"""
        return os.fstat(self._descriptor).st_nlink > 0

    def release(self, used: bool) -> None:
        """Lets others write. A file that was made and not used goes again, and so does the log of one that is gone."""
        leftover = [p for p, file in self._companions.items() if not self.named and _is(p, file)]
        unused = () if used or not self.in_place else self._made_by_us
        for path in (*leftover, *unused):
            with suppress(OSError):
                path.unlink()
        os.close(self._descriptor)
        _held_here.discard(self.file)


def check_place(path: Path) -> None:
    """Refuses a name under which no run can be made, or beside which lies what is left of another."""
    place = path.resolve()
    if path.is_symlink() and not path.exists():
        raise InputError(f"{path} is a link to nothing: remove it or choose another `out`.")
    if place.exists() and not place.is_file():
        raise InputError(f"{path} cannot be opened (it is no plain file): choose another `out`.")
    if not place.exists() or not place.stat().st_size:
        _refuse_stray(log_of(place))


def _refuse_stray(log: Path) -> None:
    if log.exists() and log.stat().st_size:
        raise InputError(f"{log} has votes of a run that is not there: move it beside that run, or remove it.")


def keep_log(connection: sqlite3.Connection) -> None:
    """Changes go to a log from now on, and are synced.

    Only the first bytes of a file tell the two modes apart. They change at once, so that the journal of that change may
    be in memory: one on the disk, which may name other files, is never made.
    """
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def commit_first(connection: sqlite3.Connection) -> None:
    """Commits, and has the file itself say what it is and that its log belongs to it, should they be parted."""
    connection.execute(f"PRAGMA application_id = {schema.WRITING}")
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint")


def leave_log(connection: sqlite3.Connection) -> None:
    """Puts the log into the file, unless somebody reads it."""
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA busy_timeout = 0")
        if connection.execute("PRAGMA application_id").fetchone()[0] == schema.WRITING:
            connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA journal_mode = MEMORY")


def _file(found: os.stat_result) -> File:
    return found.st_dev, found.st_ino


def _is(path: Path, file: File) -> bool:
    with suppress(OSError):
        found = path.lstat()
        return stat.S_ISREG(found.st_mode) and _file(found) == file
    return False


def _busy(path: Path) -> str:
    return f"another process is writing {path}: wait for it, or choose another `out`."
