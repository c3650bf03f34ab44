"""The run file: votes in, votes out. Whatever was committed survives anything; nothing is written twice."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError, RunError
from smoothcert.plan import Plan, Tally
from smoothcert.sampling.blocks import Claim, Phase, Votes, join
from smoothcert.store import schema
from smoothcert.store.counts import read_counts
from smoothcert.store.opening import (
    check_pages,
    check_version,
    connect_to_read,
    damaged,
    input_columns,
    is_empty,
    on_network_file_system,
    sqlite_errors,
    version_of,
)
from smoothcert.store.rows import NOTHING, Keys, end_of, fit
from smoothcert.store.schema import Info, InputRecord
from smoothcert.text import printable

logger = logging.getLogger(__name__)
COMMIT_SECONDS = 1.0
SELECT_VOTES = "SELECT * FROM votes ORDER BY position, phase DESC, first"
Row = TypeVar("Row")
LEAST_BYTES = 16
"""A row of votes takes at least so many bytes."""

META = {"plan", "info", "rejected", "checksum"}


class RunFile:
    """One SQLite file. A writer holds SQLite's write lock for as long as it is open; readers are always welcome.

    The record of the run is read once, when the file is opened.
    """

    looks: frozenset[int] = frozenset()
    """Blocks at which a schedule looks at the votes so far, which have to be found again: no row spans them."""

    def __init__(self, path: Path, connection: sqlite3.Connection, writable: bool, plan: Plan | None = None) -> None:
        self.path, self._db, self._writable = path, connection, writable
        self._pending: dict[tuple[int, Phase], list[Votes]] = {}
        self._committed_at = monotonic()
        self._meta = self._read_meta()
        self.plan = plan or self._parsed(lambda text: schema.plan_from_json(text, self._version), "plan")

    @classmethod
    def open_to_write(cls, path: Path) -> RunFile:
        """Opens or creates the file and takes the write lock, or says who has it."""
        if not path.parent.is_dir():
            raise InputError(f"the folder {path.parent} does not exist: create it or choose another `out`.")
        with sqlite_errors(path):
            connection = sqlite3.connect(path.absolute(), timeout=0, isolation_level=None, check_same_thread=False)
            try:
                if on_network_file_system(path):
                    logger.warning(
                        "%s is on a network file system, where SQLite cannot protect a run from two writers: keep run "
                        "files on a local disk.",
                        path,
                    )
                if not is_empty(connection):
                    check_version(path, connection)
                    check_pages(connection)
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                if is_empty(connection):
                    schema.create(connection)
                else:
                    cls(path, connection, writable=True)  # what is damaged is refused, and not sealed anew
                    schema.migrate(connection)
                return cls(path, connection, writable=True)
            except BaseException:
                connection.close()
                raise

    @classmethod
    def open_to_read(cls, path: Path, plan: Plan | None = None) -> RunFile:
        """Opens the file; its plan is not read again where the caller has it."""
        if not os.path.isfile(path):
            raise InputError(f"there is no run file {path}: check the path.")
        with sqlite_errors(path):
            connection = connect_to_read(path)
            try:
                if is_empty(connection):
                    raise InputError(f"{path} holds no run yet: certify into it first.")
                check_version(path, connection)
                return cls(path, connection, writable=False, plan=plan)
            except BaseException:
                connection.close()
                raise

    @classmethod
    def plan_of(cls, path: Path) -> Plan | None:
        """The plan that the file declares, or None where there is no file or no plan yet."""
        if not os.path.isfile(path):
            return None
        with sqlite_errors(path), closing(connect_to_read(path)) as connection:
            if is_empty(connection):
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
    def info(self) -> Info:
        info = self._parsed(schema.info_from_json, "info")
        if info is None:
            raise InputError(f"{self.path} holds no run: certify into it first.")
        return info

    @property
    def rejected(self) -> str | None:
        """Why the votes certify nothing, or None."""
        reason = self._meta.get("rejected")
        return None if reason is None else printable(reason)

    def declare(self, plan: Plan, info: Info) -> None:
        """Writes the plan, before the first draw."""
        with sqlite_errors(self.path):
            if any(self._db.execute(f"SELECT EXISTS (SELECT 1 FROM {t})").fetchone()[0] for t in ("inputs", "votes")):
                raise RunError(damaged(self.path, "votes but no plan"))
        self._write_meta({"plan": schema.to_json(plan), "info": schema.to_json(info)})
        self.plan = plan

    def reject(self, reason: str | None) -> None:
        """Writes why the votes certify nothing, or with None that they do."""
        meta = {key: value for key, value in self._meta.items() if key != "rejected"}
        self._write_meta(meta if reason is None else {**meta, "rejected": reason})

    def _write_meta(self, meta: Mapping[str, str]) -> None:
        rows = {**meta, "checksum": schema.meta_checksum(meta)}
        with sqlite_errors(self.path):
            self._db.execute("DELETE FROM meta")
            self._db.executemany("INSERT INTO meta VALUES (?, ?)", rows.items())
        self.commit()
        self._meta = dict(meta)

    def _read_meta(self) -> dict[str, str]:
        """The record of the run, checked; files of format 1 have no checksum."""
        with sqlite_errors(self.path):
            meta = dict(self._db.execute(f"SELECT key, value FROM meta LIMIT {len(META) + 1}").fetchall())
            self._version = version_of(self._db)
        unknown, checksum = meta.keys() - META, meta.pop("checksum", None)
        text = all(isinstance(value, str) for value in meta.values())
        sealed = bool(meta) and self._version > 1
        if unknown or not text or (sealed and checksum != schema.meta_checksum(meta)):
            raise RunError(damaged(self.path, "a damaged plan"))
        return meta

    def _parsed(self, read: Callable[[str], Row], key: str) -> Row | None:
        text = self._meta.get(key)
        try:
            return None if text is None else read(text)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise RunError(damaged(self.path, "a damaged plan")) from None

    # ---- writing

    def add_input(self, record: InputRecord, thumbnail: bytes | None) -> None:
        with sqlite_errors(self.path):
            self._db.execute("INSERT INTO inputs VALUES (?, ?, ?, ?, ?, ?)", schema.pack_input(record, thumbnail))

    def add_claim(self, claim: Claim) -> None:
        """Keeps a claim; it is committed together with the votes it rests on."""
        with sqlite_errors(self.path):
            self._db.execute("INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?)", schema.pack_claim(claim))

    def add_constants(self, constants: Mapping[int, float]) -> None:
        """Keeps estimated Lipschitz constants by position, and commits."""
        with sqlite_errors(self.path):
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
        with sqlite_errors(self.path):
            self._pending = {}
            self._db.execute("COMMIT")
            self._db.execute("BEGIN IMMEDIATE")
        self._committed_at = monotonic()

    def write_votes(self, votes: Iterable[Votes]) -> None:
        """Writes each as a row; they are committed with what comes next."""
        with sqlite_errors(self.path):
            self._db.executemany("INSERT INTO votes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", map(schema.pack, votes))

    def _joined(self, pending: list[Votes]) -> Iterator[Votes]:
        """Votes of consecutive blocks as one, but never across a look."""
        start = 0
        for i in range(1, len(pending) + 1):
            if i == len(pending) or pending[i].first != pending[i - 1].last or pending[i].first in self.looks:
                yield join(pending[start:i])
                start = i

    # ---- reading

    def inputs(self) -> list[InputRecord]:
        """What is kept of each input, in order, checked."""
        with sqlite_errors(self.path):
            rows = self._db.execute(f"SELECT {input_columns(self._db)} FROM inputs ORDER BY position")
            return [self._checked(schema.unpack_input, row) for row in self._ascending(rows)]

    def thumbnail(self, position: int) -> bytes | None:
        with sqlite_errors(self.path):
            row = self._db.execute("SELECT thumbnail FROM inputs WHERE position = ?", (position,)).fetchone()
        return None if row is None else row[0]

    def claims(self) -> list[Claim]:
        """What was claimed of inputs, in order: by the rule that ended their draws, or by an imported log.

        Where a rule ended the draws, the votes that it saw are there.
        """
        with sqlite_errors(self.path):
            rows = list(self._ascending(self._db.execute("SELECT * FROM claims ORDER BY position")))
        claims, plan = [self._checked(schema.unpack_claim, row) for row in rows], self.plan
        if plan and plan.adaptive:
            with sqlite_errors(self.path):
                most = os.path.getsize(self.path) // LEAST_BYTES
                some = f"(SELECT position, draws FROM votes ORDER BY position LIMIT {most})"
                drawn = dict(self._db.execute(f"SELECT position, sum(draws) FROM {some} GROUP BY position").fetchall())
            for claim in claims:
                if drawn.get(claim.position) != plan.question.n0 + claim.n:
                    raise RunError(damaged(self.path, f"a claim without its votes for input number {claim.position}"))
        return claims

    def constants(self) -> dict[int, float]:
        """The estimated Lipschitz constants of inputs, by position; files of format 1 have none."""
        if self._version < 2:
            return {}
        with sqlite_errors(self.path):
            rows = list(self._ascending(self._db.execute("SELECT * FROM constants ORDER BY position")))
        return dict(self._checked(schema.unpack_constant, row) for row in rows)

    def votes(self) -> Iterator[Votes]:
        """Every stored row, checked: its checksum, its total, and that it fits the rows before it.

        Those of an input come in the order in which they were drawn.
        """
        before = NOTHING
        with sqlite_errors(self.path):
            for row in self._db.execute(SELECT_VOTES):
                votes = self._checked(schema.unpack, row)
                key = Keys.of(votes)
                if self.plan is None or not fit(key, self.plan, before):
                    raise RunError(damaged(self.path, "rows that contradict each other"))
                before = end_of(key)
                yield votes

    def tally(self, positions: NDArray[np.int64]) -> Tally:
        """The votes of the inputs at these positions, added up."""
        plan = self.plan
        assert plan is not None
        if not plan.classifier.votes.soft:
            with sqlite_errors(self.path):
                counted = read_counts(self._db.execute(SELECT_VOTES), plan, positions)
            if counted is not None:
                return counted
        index = {int(position): i for i, position in enumerate(positions)}
        m, c = len(positions), plan.classifier.num_classes
        tally = Tally.zeros(m, c, plan.classifier.votes.others(m, c))
        for votes in self.votes():
            if votes.position not in index:
                raise RunError(damaged(self.path, f"votes for an unknown input number {votes.position}"))
            tally.add(votes, index[votes.position], int(votes.phase is Phase.ESTIMATION))
        return tally

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
