"""The run file: votes in, votes out. Whatever was committed survives anything; nothing is written twice."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError, RunError
from smoothcert.sampling.blocks import BLOCK, Claim, Phase, Votes, join
from smoothcert.sampling.simplex import HARD
from smoothcert.store import schema
from smoothcert.store.counts import read_counts
from smoothcert.store.schema import Info, Plan
from smoothcert.text import printable

COMMIT_SECONDS = 1.0
VOTES = "SELECT * FROM votes ORDER BY position, phase DESC, first"
Row = TypeVar("Row")
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)  # the latter where a message quotes bytes that are no text
TABLES = {"meta", "inputs", "votes", "claims", "constants"}
LEAST_BYTES, MOST_BYTES = 16, 1 << 26
"""A row of votes takes at least so many bytes, and no value in a file more than so many."""

META = {"plan", "info", "rejected", "checksum"}
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
                    _check_pages(connection)
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
            connection = connect_to_read(path)
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
        with _sqlite_errors(path), closing(connect_to_read(path)) as connection:
            if _is_empty(connection):
                return None
        with cls.open_to_read(path) as file:
            return file.plan

    def close(self) -> None:
        """Forgets what was not committed, and leaves one plain file behind unless somebody is reading it."""
        if self._writable:
            with suppress(sqlite3.Error):
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
        text = self._meta().get("plan")
        return None if text is None else self._parsed(Plan, text)

    @property
    def info(self) -> Info:
        text = self._meta().get("info")
        if text is None:
            raise InputError(f"{self.path} holds no run: certify into it first.")
        return self._parsed(Info, text)

    @property
    def rejected(self) -> str | None:
        """Why the votes certify nothing, or None."""
        reason = self._meta().get("rejected")
        return None if reason is None else printable(reason)

    def declare(self, plan: Plan, info: Info) -> None:
        """Writes the plan, before the first draw."""
        with _sqlite_errors(self.path):
            if any(self._db.execute(f"SELECT EXISTS (SELECT 1 FROM {t})").fetchone()[0] for t in ("inputs", "votes")):
                raise RunError(damaged(self.path, "votes but no plan"))
        self._write_meta({"plan": schema.to_json(plan), "info": schema.to_json(info)})

    def reject(self, reason: str | None) -> None:
        """Writes why the votes certify nothing, or with None that they do."""
        meta = {key: value for key, value in self._meta().items() if key != "rejected"}
        self._write_meta(meta if reason is None else {**meta, "rejected": reason})

    def _write_meta(self, meta: Mapping[str, str]) -> None:
        rows = {**meta, "checksum": schema.meta_checksum(meta)}
        with _sqlite_errors(self.path):
            self._db.execute("DELETE FROM meta")
            self._db.executemany("INSERT INTO meta VALUES (?, ?)", rows.items())
        self.commit()

    def _meta(self) -> dict[str, str]:
        """The record of the run, checked; files of format 1 have no checksum."""
        with _sqlite_errors(self.path):
            meta = dict(self._db.execute(f"SELECT key, value FROM meta LIMIT {len(META) + 1}").fetchall())
            sealed = bool(meta) and _version(self._db) > 1
        unknown, checksum = meta.keys() - META, meta.pop("checksum", None)
        text = all(isinstance(value, str) for value in meta.values())
        if unknown or not text or (sealed and checksum != schema.meta_checksum(meta)):
            raise RunError(damaged(self.path, "a damaged plan"))
        return meta

    def _parsed(self, kind: type[Row], text: str) -> Row:
        try:
            record: Row = schema.from_json(kind, text)
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise RunError(damaged(self.path, "a damaged plan")) from None
        return record

    # ---- writing

    def add_input(self, position: int, id: str, label: int, digest: str | None, thumbnail: bytes | None) -> None:
        with _sqlite_errors(self.path):
            row = schema.pack_input((position, id, label, digest), thumbnail)
            self._db.execute("INSERT INTO inputs VALUES (?, ?, ?, ?, ?, ?)", row)

    def add_claim(self, claim: Claim) -> None:
        """Keeps a claim; it is committed together with the votes it rests on."""
        with _sqlite_errors(self.path):
            self._db.execute("INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?)", schema.pack_claim(claim))

    def add_constants(self, constants: Mapping[int, float]) -> None:
        """Keeps estimated Lipschitz constants by position, and commits."""
        with _sqlite_errors(self.path):
            rows = [schema.pack_constant(*item) for item in constants.items()]
            self._db.executemany("INSERT INTO constants VALUES (?, ?, ?)", rows)
        self.commit()

    def add_votes(self, votes: Votes) -> None:
        """Keeps the votes; they are committed within about a second."""
        self._pending.setdefault((votes.position, votes.phase), []).append(votes)
        if monotonic() - self._committed_at > COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Writes what is pending; after this returns, kill -9 loses none of it."""
        if not self._db.in_transaction:
            return  # SQLite has rolled back on its own, as it does on a full disk: nothing goes in without the rest
        self.write_votes(votes for pending in self._pending.values() for votes in self._joined(pending))
        with _sqlite_errors(self.path):
            self._pending = {}
            self._db.execute("COMMIT")
            self._db.execute("BEGIN IMMEDIATE")
        self._committed_at = monotonic()

    def write_votes(self, votes: Iterable[Votes]) -> None:
        """Writes each as a row; they are committed with what comes next."""
        with _sqlite_errors(self.path):
            self._db.executemany("INSERT INTO votes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", map(schema.pack, votes))

    def _joined(self, pending: list[Votes]) -> Iterator[Votes]:
        """Votes of consecutive blocks as one, but never across a look."""
        start = 0
        for i in range(1, len(pending) + 1):
            if i == len(pending) or pending[i].first != pending[i - 1].last or pending[i].first in self.looks:
                yield join(pending[start:i])
                start = i

    # ---- reading

    def inputs(self) -> list[tuple[int, str, int, str | None]]:
        """(position, id, label, digest) in order, checked."""
        with _sqlite_errors(self.path):
            rows = self._db.execute(f"SELECT {input_columns(self._db)} FROM inputs ORDER BY position")
            return [self._checked(schema.unpack_input, row) for row in self._ascending(rows)]

    def thumbnail(self, position: int) -> bytes | None:
        with _sqlite_errors(self.path):
            row = self._db.execute("SELECT thumbnail FROM inputs WHERE position = ?", (position,)).fetchone()
        return None if row is None else row[0]

    def claims(self) -> list[Claim]:
        """What was claimed of inputs, in order: by the rule that ended their draws, or by an imported log.

        Where a rule ended the draws, the votes that it saw are there.
        """
        with _sqlite_errors(self.path):
            rows = list(self._ascending(self._db.execute("SELECT * FROM claims ORDER BY position")))
        claims, plan = [self._checked(schema.unpack_claim, row) for row in rows], self.plan
        if plan and plan.sequential:
            with _sqlite_errors(self.path):
                most = os.path.getsize(self.path) // LEAST_BYTES
                some = f"(SELECT position, draws FROM votes ORDER BY position LIMIT {most})"
                drawn = dict(self._db.execute(f"SELECT position, sum(draws) FROM {some} GROUP BY position").fetchall())
            for claim in claims:
                if drawn.get(claim.position) != plan.n0 + claim.n:
                    raise RunError(damaged(self.path, f"a claim without its votes for input number {claim.position}"))
        return claims

    def constants(self) -> dict[int, float]:
        """The estimated Lipschitz constants of inputs, by position; files of format 1 have none."""
        with _sqlite_errors(self.path):
            if _version(self._db) < 2:
                return {}
            rows = list(self._ascending(self._db.execute("SELECT * FROM constants ORDER BY position")))
        return dict(self._checked(schema.unpack_constant, row) for row in rows)

    def votes(self) -> Iterator[Votes]:
        """Every stored row, checked: its checksum, its total, and no block twice.

        Those of an input come in the order in which they were drawn.
        """
        plan, reached = self.plan, dict[tuple[int, Phase], int]()
        with _sqlite_errors(self.path):
            for row in self._db.execute(VOTES):
                votes = self._checked(schema.unpack, row)
                if plan is None or contradicts(votes, plan, reached):
                    raise RunError(damaged(self.path, "rows that contradict each other"))
                reached[votes.position, votes.phase] = votes.last
                yield votes

    def counts(self, plan: Plan, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
        """What `votes` adds up to, for a file with many inputs: see `read_counts`."""
        with _sqlite_errors(self.path):
            return read_counts(self._db.execute(VOTES), plan, positions)

    def _ascending(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Rows by position; a forged tree of pages, whose branches meet again, would yield the same ones for ever."""
        before = -1
        for row in rows:
            if not isinstance(row[0], int) or row[0] <= before:
                raise RunError(damaged(self.path, "rows out of order"))
            before = row[0]
            yield row

    def _checked(self, unpack: Callable[[tuple[Any, ...]], Row], row: tuple[Any, ...]) -> Row:
        try:
            return unpack(row)
        except RunError as error:
            raise RunError(damaged(self.path, str(error))) from None


def contradicts(votes: Votes, plan: Plan, reached: Mapping[tuple[int, Phase], int]) -> bool:
    """Whether a row cannot belong to a run whose blocks before it, by input and phase, end at `reached`.

    A rule that looks at the votes sees them in order, the selection first: there nothing may be missing in between.
    """
    wanted = {Phase.SELECTION: plan.n0, Phase.ESTIMATION: plan.n}.get(votes.phase, 0)
    end = reached.get((votes.position, votes.phase), 0)
    if plan.sequential:
        chosen = min(BLOCK * reached.get((votes.position, Phase.SELECTION), 0), plan.n0)
        if votes.first != end or (votes.phase is Phase.ESTIMATION and chosen < plan.n0):
            return True
    return (
        not 0 <= votes.position < plan.total
        or votes.first < end
        or votes.draws != min(BLOCK * votes.last, wanted) - BLOCK * votes.first
        or bool(votes.classes.max() >= plan.num_classes)
        or (votes.soft.sums.size if votes.soft else 0) != (0 if plan.votes == HARD else plan.num_classes)
    )


def damaged(path: Path, what: str) -> str:
    """The sentence on a file that holds what it should not."""
    return f"{path} has {what}: `smoothcert doctor {path} --out NEW` copies what is intact."


def input_columns(connection: sqlite3.Connection) -> str:
    """What `schema.unpack_input` takes; files of format 1 have no checksum there."""
    return "position, id, label, digest" + (", checksum" if _version(connection) > 1 else "")


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that cannot write, to a file that needs no writing to be read.

    A writer killed while it was closing the file leaves SQLite something to roll back, which takes a connection that
    can write: any glance of one does it.
    """
    connection = _connect_read_only(path)
    try:
        _is_empty(connection)
    except sqlite3.OperationalError as error:
        if "readonly" in str(error):
            with closing(sqlite3.connect(path.absolute())) as able:
                _is_empty(able)
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


def _is_empty(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _check_pages(connection: sqlite3.Connection) -> None:
    """Nothing is written into a file whose pages are damaged: it could overwrite what is intact."""
    (report,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if report != "ok":
        raise sqlite3.DatabaseError(report)


def _check_version(path: Path, connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
        raise InputError(f"{path} is not a smoothcert run file: choose another path.")
    for kind, name, text in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        # A view, a trigger or a computed column would be SQL of the file's that runs when it is read or written.
        plain = kind == "table" and re.match(r"CREATE TABLE (?!.*\bAS\b)", str(text), re.IGNORECASE | re.DOTALL)
        if not plain or name not in TABLES:
            raise RunError(damaged(path, f"a {kind} {name!r} that does not belong there"))
    version = _version(connection)
    if version < 1:
        raise RunError(damaged(path, f"an impossible format ({version})"))
    if version > schema.VERSION:
        raise InputError(f"{path} was written by a newer smoothcert (format {version}): upgrade smoothcert to open it.")


@contextmanager
def _sqlite_errors(path: Path) -> Iterator[None]:
    """SQLite's errors as sentences that say what to do."""
    try:
        yield
    except SQLITE_ERRORS as error:
        message = printable(str(error))  # it may quote a damaged file
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
        if "disk I/O" in message:
            raise RunError(
                f"{path} cannot be read or written ({message}): check the disk, its space and the quota, and run the "
                f"same command again."
            ) from None
        raise RunError(damaged(path, f"damaged pages ({message})")) from error


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
