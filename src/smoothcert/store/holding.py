"""The one writer of a run file, who holds the file itself and not its name.

SQLite looks for a journal to roll back whenever it comes to a file without a log, unless somebody holds the byte that
it locks to write. The writer holds that byte from before SQLite opens the file until after it has closed it: no journal
that comes to lie there, at whatever moment, is followed. The change between a file with a log and one without, which
SQLite itself makes with that byte, is made here.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import struct
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from smoothcert.errors import InputError, RunError
from smoothcert.store import schema
from smoothcert.store.opening import File, Header, check_companions, file_of, index_of, is_file, log_of, parted

RESERVED = (1 << 30) + 1, 1
SHARED = (1 << 30) + 2, 510
"""What SQLite locks to write and to read without a log, first byte and length (its source, os.h)."""

READERS_SECONDS, PAUSE = 5.0, 0.02
"""How long those are waited for who read the file when it is opened, and how often they are asked."""

EMPTY = (
    b"SQLite format 3\0"
    + struct.pack(">HBBBBBB", 4096, 2, 2, 0, 64, 32, 32)
    + struct.pack(">II", 0, 1).ljust(76, b"\0")
    + struct.pack(">BHHHB", 13, 0, 0, 4096, 0)
).ljust(4096, b"\0")
"""A database with a log and without tables (SQLite's file format, sections 1.3 and 1.6)."""

_held_here: set[File] = set()
"""What this process writes: opening one of them again, and closing it, would end SQLite's locks on it."""


class Hold:
    """A file by device and inode, locked; under which name a second writer comes makes no difference."""

    def __init__(self, path: Path) -> None:
        """Makes the file where there is none. A link is followed to a run, but makes none."""
        self.path = path.resolve()
        check_place(path)
        made = not self.path.exists()
        if not made and file_of(self.path.stat()) in _held_here:
            raise RunError(_busy(path))
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise InputError(
                f"{path} cannot be opened ({error.strerror}): check the folder and its permissions."
            ) from None
        self.file = file_of(os.fstat(self._descriptor))
        self._companions: dict[Path, File] = {}
        self._keeps_log = False
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
        try:
            if not self._set(fcntl.F_WRLCK, RESERVED):
                raise RunError(_busy(path))
        except OSError as error:
            raise InputError(
                f"{path} cannot be locked ({error.strerror}): keep run files on a disk of this machine."
            ) from None

    def _set(self, lock: int, where: tuple[int, int]) -> bool:
        """A lock of the open file, unless another has it: one of the process would go whenever SQLite gives up its own,
        and would not keep SQLite in this process from anything. Linux only."""
        if not hasattr(fcntl, "F_OFD_SETLK"):
            return True
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", lock, os.SEEK_SET, *where, 0))
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    def _check(self, path: Path) -> None:
        """SQLite would write over a log that belongs to another file, and forget one that is elsewhere."""
        check_companions(self.path)
        header, log = self._header, log_of(self.path)
        if not header:
            _refuse_stray(log)
        if header.parted and not log.exists():
            raise RunError(parted(path))

    @property
    def _header(self) -> Header:
        return Header(os.pread(self._descriptor, 100, 0))

    def keep_log(self, connection: sqlite3.Connection) -> None:
        """Changes to a file that is a run, or empty, go to a log from now on, and are synced."""
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            until = monotonic() + READERS_SECONDS
            while not self._write_mode(with_log=True):
                if monotonic() > until:
                    raise RunError(f"others read {self.path} and do not end: wait for them, or choose another `out`.")
                sleep(PAUSE)
        self._keeps_log = True
        connection.execute("PRAGMA synchronous = FULL")

    def _write_mode(self, with_log: bool) -> bool:
        """Has the file say in its first bytes whether it has a log, unless somebody reads it.

        Nothing else tells the two apart, and they change at once. Who has it open notices by its count of changes.
        """
        if not self._set(fcntl.F_WRLCK, SHARED):
            return False
        try:
            header = self._header
            os.pwrite(self._descriptor, header.in_mode(with_log) if header else EMPTY, 0)
            os.fsync(self._descriptor)
        except OSError as error:
            raise RunError(f"{self.path} cannot be written ({error.strerror}): check the disk and its space.") from None
        finally:
            self._set(fcntl.F_UNLCK, SHARED)
        return True

    def remember_companions(self) -> None:
        """Notes which files SQLite has made beside this one."""
        self._companions = {p: file_of(p.stat()) for p in (log_of(self.path), index_of(self.path)) if p.exists()}

    @property
    def in_place(self) -> bool:
        """Does the file still have the name under which it was opened?"""
        return is_file(self.path, self.file)

    @property
    def named(self) -> bool:
        """Does it have any name?"""
        return os.fstat(self._descriptor).st_nlink > 0

    def release(self, used: bool, log_is_empty: bool = False) -> None:
        """Lets others write, once SQLite has closed the file; one whose log is in it is a plain file again.

        A file that was made and not used goes again. So does the log of one that is gone, or that was moved with all
        that was in the log.
        """
        log = log_of(self.path)
        parted = not self.named or (not self.in_place and log.exists() and not log.stat().st_size)
        leftover = [p for p, file in self._companions.items() if parted and is_file(p, file)]
        unused = () if used or not self.in_place else self._made_by_us
        for path in (*leftover, *unused):
            with suppress(OSError):
                path.unlink()
        if self._keeps_log and not log.exists() and (log_is_empty or not self._header.parted):
            with suppress(RunError):
                self._write_mode(with_log=False)
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


def commit_first(connection: sqlite3.Connection) -> None:
    """Commits, and has the file itself say what it is and that its log belongs to it, should they be parted."""
    connection.execute(f"PRAGMA application_id = {schema.WRITING}")
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint")


def empty_log(connection: sqlite3.Connection) -> bool:
    """Puts the log into the file, unless somebody reads it or there is no room; closed, it has none then.

    That the file stands alone goes to the log first, unless that has no room even for this.
    """
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA busy_timeout = 0")
        with suppress(sqlite3.Error):
            if connection.execute("PRAGMA application_id").fetchone()[0] == schema.WRITING:
                connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        return bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)
    return False


def _busy(path: Path) -> str:
    return f"another process is writing {path}: wait for it, or choose another `out`."
