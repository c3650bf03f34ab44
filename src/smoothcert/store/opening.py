"""Opening a run file: SQLite's connections, what is refused before anything is read, its errors as sentences."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from smoothcert.errors import InputError, RunError
from smoothcert.store import schema
from smoothcert.text import printable

SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)  # the latter where a message quotes bytes that are no text
MOST_BYTES = 1 << 26
"""No value in a file takes more bytes."""

NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs", "9p"}


def damaged(path: Path, what: str) -> str:
    """The sentence on a file that holds what it should not."""
    return f"{path} has {what}: `diagnose` copies what is intact."


def input_columns(connection: sqlite3.Connection) -> str:
    """What `schema.unpack_input` takes; files of format 1 have no checksum there."""
    return "position, id, label, digest" + (", checksum" if version_of(connection) > 1 else "")


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that cannot write, to a file that needs no writing to be read.

    A writer killed while it was closing the file leaves SQLite something to roll back, which takes a connection that
    can write: any glance of one does it.
    """
    connection = _connect_read_only(path)
    try:
        is_empty(connection)
    except sqlite3.OperationalError as error:
        if "readonly" in str(error):
            with closing(sqlite3.connect(path.absolute())) as able:
                is_empty(able)
            connection.close()
            return _connect_read_only(path)
    except sqlite3.Error:
        pass  # whoever reads on says what is wrong with it
    return connection


def _connect_read_only(path: Path) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
    return connection


def is_empty(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0)


def version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def check_pages(connection: sqlite3.Connection) -> None:
    """Nothing is written into a file whose pages are damaged: it could overwrite what is intact."""
    (report,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if report != "ok":
        raise sqlite3.DatabaseError(report)


def check_version(path: Path, connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
        raise InputError(f"{path} is not a smoothcert run file: choose another path.")
    for kind, name, text in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        # A view, a trigger or a computed column would be SQL of the file's that runs when it is read or written.
        plain = kind == "table" and re.match(r"CREATE TABLE (?!.*\bAS\b)", str(text), re.IGNORECASE | re.DOTALL)
        if not plain or name not in schema.TABLE_NAMES:
            raise RunError(damaged(path, f"a {kind} {name!r} that does not belong there"))
    version = version_of(connection)
    if version < 1:
        raise RunError(damaged(path, f"an impossible format ({version})"))
    if version > schema.VERSION:
        raise InputError(f"{path} was written by a newer smoothcert (format {version}): upgrade smoothcert to open it.")


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """SQLite's errors as sentences that say what to do."""
    try:
        yield
    except SQLITE_ERRORS as error:
        message = printable(str(error))  # it may quote a damaged file
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
