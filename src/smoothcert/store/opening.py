"""Opening a run file: SQLite's connections, what is refused before anything is read, its errors as sentences.

A run is read without a byte of it being written. SQLite keeps a log (`-wal`) and its index (`-shm`) beside a file that
is being written; neither names another file. A rollback journal may, and SQLite would delete what it names: we make
none, and refuse a file that has one.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from smoothcert.errors import InputError, RunError
from smoothcert.store import schema
from smoothcert.text import printable

logger = logging.getLogger(__name__)
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)  # the latter where a message quotes bytes that are no text
MOST_BYTES = 1 << 26
"""No value in a file takes more bytes."""

LEAST_BYTES = 16
"""A row takes at least so many bytes."""

READINGS = 4
"""So often a reader may read all that a file holds."""

STEPS, STEPS_PER_BYTE, MOST_COLUMNS = 1 << 20, 32, 32
"""What SQLite may do with a file that is not known yet: steps of its machine, and columns of a table."""

LOG_HEADER = 32
LOG_BEGINS = (0x377F0682, 0x377F0683), 3007000
"""The bytes before the first page of a log, and the numbers at their begin (SQLite's file format, section 4.1)."""

PAGE_SIZES = tuple(1 << power for power in range(9, 17))

ENDLESS = "rows without end"
NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs", "9p"}


File = tuple[int, int]
"""A file by device and inode, which it keeps under whatever name."""


class Unused(InputError):
    """There is a file, and nothing was written into it yet."""


def damaged(path: Path, what: str) -> str:
    """The sentence on a file that holds what it should not."""
    return f"{path} has {what}: `diagnose` copies what is intact."


def replaced(path: Path) -> str:
    """The sentence on a file that is another one than before."""
    return f"{path} was replaced while it was read: open it again."


def file_of(found: os.stat_result) -> File:
    """The file that was found."""
    return found.st_dev, found.st_ino


def is_file(path: Path, file: File) -> bool:
    """Is this the file's name?"""
    with suppress(OSError):
        found = path.lstat()
        return stat.S_ISREG(found.st_mode) and file_of(found) == file
    return False


def log_of(path: Path) -> Path:
    """SQLite's write-ahead log of a file."""
    return path.with_name(path.name + "-wal")


def index_of(path: Path) -> Path:
    """The index of that log, shared by those who have the file open."""
    return path.with_name(path.name + "-shm")


def size_of(path: Path) -> int:
    """The bytes of a file and of its log."""
    size = 0
    for part in (path, log_of(path)):
        with suppress(FileNotFoundError):
            size += part.stat().st_size
    return size


def connect_to_read(path: Path) -> tuple[sqlite3.Connection, File]:
    """A connection that writes nothing, to one state of a file whose tables are ours, and which file that is.

    The log is read through the index of a living writer, else through one in memory; for that, too, there has to be a
    file. A file in log mode that has no log is read as it is: nobody is writing it. A log that ends with its header is
    none, where a writer died between that and its first page, and what has no header is no log of SQLite's: SQLite
    would wait ten seconds for either to become one, and then give up.
    """
    real = path.resolve()
    if not real.is_file():
        raise InputError(f"there is no run file {path}: check the path.")
    check_companions(real)
    found = real.stat()
    if found.st_size == 0:  # SQLite would delete a log beside it
        raise Unused(f"{path} holds no run yet: certify into it first.")
    if _has_pages(log_of(real)):
        _make_index(real)
        how = "mode=ro&readonly_shm=1"
    elif log_of(real).exists():
        how = "mode=ro&immutable=1"
    else:
        header = Header.of(real)
        if header.parted:
            logger.warning(parted(path))
        how = "mode=ro&immutable=1" if header.in_log_mode else "mode=ro"
    with sqlite_errors(path):
        uri = f"file:{quote(os.fsencode(real))}?{how}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("BEGIN")
            check_layout(path, connection, size_of(real))
            if not is_file(real, file_of(found)):
                raise RunError(replaced(path))
        except BaseException:
            connection.close()
            raise
    return connection, file_of(found)


def check_companions(path: Path) -> None:
    """What SQLite keeps beside a file must be plain files that have no other name, and no journal."""
    if os.path.lexists(journal := path.with_name(path.name + "-journal")):
        raise InputError(f"{journal} is not smoothcert's, and SQLite would follow the names in it: move it away.")
    for companion in (log_of(path), index_of(path)):
        with suppress(FileNotFoundError):
            found = companion.lstat()
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                raise InputError(f"{companion} is a link or no plain file: move it away.")


def _has_pages(log: Path) -> bool:
    """Is it a log from which SQLite reads? One that is shorter than its header is, and holds nothing."""
    try:
        with log.open("rb") as file:
            header = file.read(LOG_HEADER + 1)
    except FileNotFoundError:
        return False
    if len(header) < LOG_HEADER:
        return True
    first, version, page, *_, one, two = struct.unpack(">8I", header[:LOG_HEADER])
    begins = first in LOG_BEGINS[0] and version == LOG_BEGINS[1] and page in PAGE_SIZES
    if begins and (one, two) == _log_checksum(header, first & 1):
        return len(header) > LOG_HEADER
    logger.warning("%s is no log of SQLite's and is not read: remove it if it belongs to no run.", log)
    return False


def _log_checksum(header: bytes, big: int) -> tuple[int, int]:
    """Of the first 24 bytes of a log (section 4.2)."""
    one = two = 0
    for x, y in struct.iter_unpack(">II" if big else "<II", header[:24]):
        one = (one + x + two) % (1 << 32)
        two = (two + y + one) % (1 << 32)
    return one, two


def _make_index(path: Path) -> None:
    """An empty index, which SQLite does not trust; one that is there is left alone."""
    try:
        os.close(os.open(index_of(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        pass
    except OSError as error:
        raise InputError(
            f"{index_of(path)} cannot be made ({error.strerror}): copy the run with its log to another folder."
        ) from None


class Header(bytes):
    """The first bytes of a file, as SQLite's file format has them."""

    @classmethod
    def of(cls, path: Path) -> Header:
        """Of a file that nobody writes: that it is closed here would end this process's locks on it."""
        with path.open("rb") as file:
            return cls(file.read(100))

    @property
    def in_log_mode(self) -> bool:
        """Are changes kept in a log?"""
        return self[19:20] == b"\2"

    def in_mode(self, with_log: bool) -> bytes:
        """The same with a log or without, and one more change counted; without, it says that it stands alone."""
        changes, same = (int.from_bytes(self[at : at + 4], "big") for at in (24, 92))
        mode = bytes([1 + with_log] * 2)
        counts = (((count + 1) % (1 << 32)).to_bytes(4, "big") for count in (changes, same))
        name = self[68:72] if with_log else schema.APPLICATION_ID.to_bytes(4, "big")
        return (
            self[:18] + mode + self[20:24] + next(counts) + self[28:68] + name + self[72:92] + next(counts) + self[96:]
        )

    @property
    def parted(self) -> bool:
        """Was it being written when it was parted from its log? One who leaves says so before the log goes."""
        return self.in_log_mode and self[68:72] == schema.WRITING.to_bytes(4, "big")


def parted(path: Path) -> str:
    """The sentence on a file that was moved, copied or linked without its log."""
    return f"{path} is parted from its log, which has votes of it: move the file that ends in -wal beside it as well."


def guard(connection: sqlite3.Connection, size: int) -> None:
    """Before the tables of a file are known: nothing of its own is run, and nothing goes on without end."""
    for setting in ("trusted_schema = OFF", "cell_size_check = ON", "temp_store = MEMORY"):
        connection.execute(f"PRAGMA {setting}")
    _limit(connection, len(schema.TABLES), MOST_COLUMNS)
    left = iter(range(8 + size * STEPS_PER_BYTE // STEPS))
    connection.set_progress_handler(lambda: next(left, None) is None, STEPS)


def _limit(connection: sqlite3.Connection, size: int, columns: int) -> None:
    """No value is larger, and no table wider; Python 3.10 cannot say so."""
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, size)
        connection.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, columns)


def unguard(connection: sqlite3.Connection) -> None:
    """Once its pages are checked, too: votes may be added for as long as it takes."""
    connection.set_progress_handler(None, 0)
    _limit(connection, MOST_BYTES, MOST_COLUMNS)


def check_layout(path: Path, connection: sqlite3.Connection, size: int) -> None:
    """Refuses what does not have exactly the tables of its format: more would be SQL that runs when it is read."""
    guard(connection, size)
    if is_empty(connection):
        raise Unused(f"{path} holds no run yet: certify into it first.")
    if connection.execute("PRAGMA application_id").fetchone()[0] not in (schema.APPLICATION_ID, schema.WRITING):
        raise InputError(f"{path} is not a smoothcert run file: choose another path.")
    version = version_of(connection)
    if version < 1:
        raise RunError(damaged(path, f"an impossible format ({version})"))
    if version > schema.VERSION:
        raise InputError(f"{path} was written by a newer smoothcert (format {version}): upgrade smoothcert to open it.")
    if schema.layout_of(connection) not in schema.layouts(version):
        raise RunError(damaged(path, "tables that are not those of a run"))
    _limit(connection, min(MOST_BYTES, size), MOST_COLUMNS)


def check_pages(connection: sqlite3.Connection, check: str = "quick_check") -> None:
    """Refuses damaged pages: to write between them could overwrite what is intact.

    SQLite's check goes down a tree of pages for as long as the stack lasts; walking the rows, it stops at a depth of
    20. So they are walked first.
    """
    for (table,) in connection.execute("SELECT name FROM sqlite_master").fetchall():
        connection.execute(f"SELECT sum(1) FROM {table}").fetchone()
    (report,) = connection.execute(f"PRAGMA {check}(1)").fetchone()
    if report != "ok":
        raise sqlite3.DatabaseError(report)


class Ration:
    """So many bytes of rows and no more: a forged file may use a page many times, and yield rows for ever."""

    def __init__(self, left: float) -> None:
        self.left = left

    def __call__(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        for row in rows:
            self.left -= LEAST_BYTES + sum(len(value) for value in row if isinstance(value, bytes | str))
            if self.left < 0:
                raise sqlite3.DatabaseError(ENDLESS)
            yield row


def is_empty(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0)


def version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def input_columns(connection: sqlite3.Connection) -> str:
    """What `schema.unpack_input` takes; files of format 1 have no checksum there."""
    return "position, id, label, digest" + (", checksum" if version_of(connection) > 1 else "")


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """SQLite's errors as sentences that say what to do."""
    try:
        yield
    except SQLITE_ERRORS as error:
        message = printable(str(error))  # it may quote a damaged file
        if message == "interrupted":
            raise RunError(damaged(path, ENDLESS)) from None
        if "locked" in message:
            raise RunError(f"another process is writing {path}: wait for it, or choose another `out`.") from None
        if "full" in message:
            raise RunError(
                f"the disk is full: free some space and start it again, {path} keeps what was done."
            ) from None
        if "not a database" in message:
            raise InputError(f"{path} is not a smoothcert run file: choose another path.") from None
        if "unable to open" in message or "readonly" in message:
            raise InputError(f"{path} cannot be opened ({message}): check the folder and its permissions.") from None
        if "disk I/O" in message:
            raise RunError(
                f"{path} cannot be read or written ({message}): check the disk, its space and the quota, and start "
                f"it again."
            ) from None
        raise RunError(damaged(path, f"damaged pages ({message})")) from error


def on_network_file_system(path: Path) -> bool:
    """Does the path lie on a network mount? Linux only; elsewhere the answer is no."""
    try:
        mounts = [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return False
    target = path.parent.resolve()
    kinds = {m[4]: m[m.index("-") + 1] for m in mounts if "-" in m}
    nearest = next((str(p) for p in (target, *target.parents) if str(p) in kinds), None)
    return nearest is not None and kinds[nearest] in NETWORK_FILE_SYSTEMS
