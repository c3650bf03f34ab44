"""The run file: votes in, votes out. Whatever was committed survives anything; nothing is written twice."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import quote

from smoothcert.errors import InputError, RunError
from smoothcert.sampling.blocks import Claim, Phase, Votes, join
from smoothcert.store import schema
from smoothcert.store.schema import Info, Plan

COMMIT_SECONDS = 1.0
Row = TypeVar("Row")
NETWORK_FILE_SYSTEMS = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "fuse.sshfs",
    "9p",
}


class RunFile:
    """One SQLite file. A writer holds SQLite's write lock for as long as it is open; readers are always welcome."""

    looks: frozenset[int] = frozenset()
    """Blocks at which a schedule looks at the votes so far, which have to be found again: no row spans them."""

    def __init__(self, path: Path, connection: sqlite3.Connection, writable: bool) -> None:
        self.path, self._db, self._writable = path, connection, writable
        self._pending: dict[tuple[int, Phase], list[Votes]] = {}
        self._committed_at = monotonic()

    @classmethod
    def open_to_write(cls, path: Path) -> RunFile:
        """Opens or creates the file and takes the write lock, or says who has it."""
        if not path.parent.is_dir():
            raise InputError(f"the folder {path.parent} does not exist: create it or choose another --out.")
        with _sqlite_errors(path):
            connection = sqlite3.connect(path.absolute(), timeout=0, isolation_level=None, check_same_thread=False)
            try:
                if _network_file_system(path):
                    print(
                        f"warning: {path} is on a network file system, where SQLite cannot protect a run from two "
                        f"writers: keep run files on a local disk.",
                        file=sys.stderr,
                    )
                if not _is_empty(connection):
                    _check_version(path, connection)
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                if _is_empty(connection):
                    schema.create(connection)
                else:
                    schema.migrate(connection)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection, writable=True)

    @classmethod
    def open_to_read(cls, path: Path) -> RunFile:
        if not os.path.isfile(path):
            raise InputError(f"there is no run file {path}: check the path.")
        with _sqlite_errors(path):
            connection = _connect_to_read(path)
            try:
                if _is_empty(connection):
                    raise InputError(f"{path} holds no run yet: certify into it first.")
                _check_version(path, connection)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection, writable=False)

    @classmethod
    def plan_of(cls, path: Path) -> Plan | None:
        """The plan that the file declares, or None where there is no file or no plan yet."""
        if not os.path.isfile(path):
            return None
        with _sqlite_errors(path), closing(_connect_to_read(path)) as connection:
            if _is_empty(connection):
                return None
        with cls.open_to_read(path) as file:
            return file.plan

    def close(self) -> None:
        """Forgets what was not committed, and leaves one plain file behind unless somebody is reading it."""
        if self._writable:
            with suppress(sqlite3.OperationalError):
                self._db.execute("ROLLBACK")
                self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()

    def __enter__(self) -> RunFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- the record of the run

    @property
    def plan(self) -> Plan | None:
        """The declared plan, or None where nothing was declared yet."""
        text = self._meta("plan")
        return None if text is None else schema.from_json(Plan, text)

    @property
    def info(self) -> Info:
        text = self._meta("info")
        if text is None:
            raise InputError(f"{self.path} holds no run: certify into it first.")
        info: Info = schema.from_json(Info, text)
        return info

    def declare(self, plan: Plan, info: Info) -> None:
        """Writes the plan, before the first draw."""
        with _sqlite_errors(self.path):
            self._db.execute(
                "INSERT INTO meta VALUES ('plan', ?), ('info', ?)",
                (schema.to_json(plan), schema.to_json(info)),
            )
        self.commit()

    def _meta(self, key: str) -> str | None:
        with _sqlite_errors(self.path):
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    # ---- writing

    def add_input(self, position: int, id: str, label: int, digest: str | None, thumbnail: bytes | None) -> None:
        with _sqlite_errors(self.path):
            self._db.execute("INSERT INTO inputs VALUES (?, ?, ?, ?, ?)", (position, id, label, digest, thumbnail))

    def add_claim(self, claim: Claim) -> None:
        """Keeps a claim; it is committed together with the votes it rests on."""
        with _sqlite_errors(self.path):
            self._db.execute("INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?)", schema.pack_claim(claim))

    def add_votes(self, votes: Votes) -> None:
        """Keeps the votes; they are committed within about a second."""
        self._pending.setdefault((votes.position, votes.phase), []).append(votes)
        if monotonic() - self._committed_at > COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Writes what is pending; after this returns, kill -9 loses none of it."""
        if not self._db.in_transaction:
            return  # SQLite has rolled back on its own, as it does on a full disk: nothing goes in without the rest
        rows = [schema.pack(votes) for pending in self._pending.values() for votes in self._joined(pending)]
        with _sqlite_errors(self.path):
            self._db.executemany("INSERT INTO votes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            self._pending = {}
            self._db.execute("COMMIT")
            self._db.execute("BEGIN IMMEDIATE")
        self._committed_at = monotonic()

    def _joined(self, pending: list[Votes]) -> Iterator[Votes]:
        """Votes of consecutive blocks as one, but never across a look."""
        start = 0
        for i in range(1, len(pending) + 1):
            if i == len(pending) or pending[i].first != pending[i - 1].last or pending[i].first in self.looks:
                yield join(pending[start:i])
                start = i

    # ---- reading

    def inputs(self) -> list[tuple[int, str, int, str | None]]:
        """(position, id, label, digest) in order."""
        with _sqlite_errors(self.path):
            return self._db.execute("SELECT position, id, label, digest FROM inputs ORDER BY position").fetchall()

    def thumbnail(self, position: int) -> bytes | None:
        with _sqlite_errors(self.path):
            row = self._db.execute("SELECT thumbnail FROM inputs WHERE position = ?", (position,)).fetchone()
        return None if row is None else row[0]

    def claims(self) -> list[Claim]:
        """What was claimed of inputs, in order: by the rule that ended their draws, or by an imported log."""
        with _sqlite_errors(self.path):
            rows = self._db.execute("SELECT * FROM claims ORDER BY position").fetchall()
        return [self._checked(schema.unpack_claim, row) for row in rows]

    def votes(self) -> Iterator[Votes]:
        """Every stored row, checked; those of an input in the order in which they were drawn."""
        with _sqlite_errors(self.path):
            for row in self._db.execute("SELECT * FROM votes ORDER BY position, phase DESC, first"):
                yield self._checked(schema.unpack, row)

    def _checked(self, unpack: Callable[[tuple[Any, ...]], Row], row: tuple[Any, ...]) -> Row:
        try:
            return unpack(row)
        except RunError as error:
            raise RunError(f"{self.path} has {error}: certify again into a new file.") from None


def _connect_to_read(path: Path) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def _is_empty(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0)


def _check_version(path: Path, connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
        raise InputError(f"{path} is not a smoothcert run file: choose another path.")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > schema.VERSION:
        raise InputError(f"{path} was written by a newer smoothcert (format {version}): upgrade smoothcert to open it.")


@contextmanager
def _sqlite_errors(path: Path) -> Iterator[None]:
    """SQLite's errors as sentences that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        message = str(error)
        if "locked" in message:
            raise RunError(f"another process is writing {path}: wait for it, or choose another --out.") from None
        if "full" in message:
            raise RunError(
                f"the disk is full: free some space and run the same command again, {path} keeps what was done."
            ) from None
        if "not a database" in message:
            raise InputError(f"{path} is not a smoothcert run file: choose another path.") from None
        if "unable to open" in message or "readonly" in message:
            raise InputError(f"{path} cannot be opened ({message}): check the folder and its permissions.") from None
        raise RunError(f"{path} is damaged or cannot be written ({message}): certify again into a new file.") from error


def _network_file_system(path: Path) -> bool:
    """Does the path lie on a network mount? Linux only; elsewhere the answer is no."""
    try:
        mounts = [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return False
    target = path.parent.resolve()
    kinds = {m[4]: m[m.index("-") + 1] for m in mounts if "-" in m}
    nearest = next((str(p) for p in (target, *target.parents) if str(p) in kinds), None)
    return nearest is not None and kinds[nearest] in NETWORK_FILE_SYSTEMS
