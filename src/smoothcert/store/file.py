"""The run file: votes in, votes out. Whatever was committed survives anything; nothing is written twice."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.errors import InputError, RunError
from smoothcert.files import unpredictable
from smoothcert.plan import Plan, Tally, bears
from smoothcert.sampling.blocks import Claim, Phase, Votes, join
from smoothcert.store import schema
from smoothcert.store.counts import check_size, read_counts
from smoothcert.store.holding import READERS_SECONDS, Hold, commit_first, empty_log
from smoothcert.store.opening import (
    READINGS,
    File,
    Ration,
    Unused,
    check_layout,
    check_pages,
    connect_to_read,
    damaged,
    guard,
    input_columns,
    is_empty,
    on_network_file_system,
    replaced,
    size_of,
    sqlite_errors,
    unguard,
    version_of,
)
from smoothcert.store.rows import NOTHING, STORED, Keys, claim_fits, end_of, fit
from smoothcert.store.schema import Info, InputRecord
from smoothcert.text import printable

logger = logging.getLogger(__name__)
COMMIT_SECONDS = 1.0
"""How often votes are committed."""

Row = TypeVar("Row")

META = {"plan", "info", "rejected", "checksum"}


@dataclass(frozen=True)
class Opened:
    """Which file was opened, what it declares, to the letter, and the plan that this is."""

    file: File
    declared: tuple[str | None, ...]
    plan: Plan | None = field(compare=False)


class RunFile:
    """One SQLite file. A writer holds SQLite's write lock for as long as it is open; readers are always welcome.

    The record of the run is read once, when the file is opened.
    """

    looks: frozenset[int] = frozenset()
    """Blocks at which a schedule looks at the votes so far, which have to be found again: no row spans them."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        file: File,
        held: Hold | None = None,
        before: Opened | None = None,
    ) -> None:
        self.path, self._db, self._file, self._held = path, connection, file, held
        self._ration = Ration(math.inf if held else READINGS * size_of(path.resolve()))
        self._pending: dict[tuple[int, Phase], list[Votes]] = {}
        self._committing, self._committed_at = Lock(), monotonic()
        self._used, self._unwanted, self._gone = False, False, ""
        self._meta = self._read_meta()
        self.plan = before.plan if before else self._parsed(self._read_plan, "plan")
        if before and before != self.opened:
            raise RunError(replaced(path))

    @classmethod
    def open_to_write(cls, path: Path) -> RunFile:
        """Opens or creates the file and takes the write lock, or says who has it."""
        if not path.parent.is_dir():
            raise InputError(f"the folder {path.parent} does not exist: create it or choose another `out`.")
        if on_network_file_system(path):
            logger.warning(
                "%s is on a network file system, where SQLite cannot protect a run from two writers: keep run files on "
                "a local disk.",
                path,
            )
        with sqlite_errors(path), ExitStack() as undo:
            held = Hold(path)
            undo.callback(held.release, used=False)
            connection = sqlite3.connect(
                held.path, timeout=READERS_SECONDS, isolation_level=None, check_same_thread=False
            )
            undo.callback(connection.close)
            guard(connection, size_of(held.path))
            empty = is_empty(connection)
            if not empty:
                check_layout(path, connection, size_of(held.path))
                check_pages(connection)
                cls(path, connection, held.file, held)  # what is damaged is refused, and not sealed anew
            unguard(connection)
            held.keep_log(connection)
            connection.execute("BEGIN IMMEDIATE")
            held.remember_companions()
            if empty:
                schema.create(connection)
            else:
                schema.migrate(connection)
            file = cls(path, connection, held.file, held)
            undo.pop_all()
        return file

    @classmethod
    def open_to_read(cls, path: Path, before: Opened | None = None) -> RunFile:
        """Opens the file. One that was opened before has to be the same, and its plan is not read again."""
        connection, file = connect_to_read(path)
        try:
            return cls(path, connection, file, before=before)
        except BaseException:
            connection.close()
            raise

    @classmethod
    def plan_of(cls, path: Path) -> Plan | None:
        """The plan that the file declares, or None where there is no file or nothing in it yet."""
        if not os.path.isfile(path):
            return None
        try:
            with cls.open_to_read(path) as file:
                if file.plan is None and file.drawn:
                    raise RunError(damaged(path, "votes but no plan"))
                return file.plan
        except Unused:
            return None

    def close(self) -> None:
        """Forgets what was not committed, and leaves one plain file behind unless somebody is reading it."""
        if self._held is None:
            self._db.close()
            return
        try:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            if self._used:
                self._require_in_place()
        finally:
            log_is_empty = self._held.named and empty_log(self._db)
            self._db.close()
            if self._unwanted and self._held.in_place:
                self._held.path.unlink()
            self._held.release(self._used, log_is_empty)

    def settle(self) -> None:
        """Brings what was committed into the one plain file, before it is closed and moved; there may be no room."""
        with sqlite_errors(self.path):
            self._db.execute("ROLLBACK")
            if not empty_log(self._db):
                raise RunError(f"{self.path.parent} has no room for a run: free some space and start it again.")

    def __enter__(self) -> RunFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def connection(self) -> sqlite3.Connection:
        """For one who looks for rows that are intact among damaged ones."""
        return self._db

    # ---- the record of the run

    @property
    def opened(self) -> Opened:
        """What tells this file from any other that comes to lie at its path."""
        return Opened(self._file, tuple(map(self._meta.get, ("plan", "info"))), self.plan)

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
        """Writes the plan, before the first draw; what could not be read again is refused."""
        check_size(self.path, plan.selection.total, plan.classifier.num_classes)
        with sqlite_errors(self.path):
            if self.drawn:
                raise RunError(damaged(self.path, "votes but no plan"))
        self._write_meta({"plan": schema.to_json(plan), "info": schema.to_json(info)})
        self.plan = plan

    def declares(self, plan: Plan) -> bool:
        """Is this the plan that was written, to the letter?"""
        return self._meta.get("plan") == schema.to_json(plan)

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

    def _read_plan(self, text: str) -> Plan:
        return schema.plan_from_json(text, self._version)

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

    def add_clean(self, classes: Mapping[int, int]) -> None:
        """Keeps the classes of inputs without noise by position, and commits."""
        with sqlite_errors(self.path):
            rows = [schema.pack_clean(*item) for item in classes.items()]
            self._db.executemany("INSERT INTO clean VALUES (?, ?, ?)", rows)
        self.commit()

    def add_votes(self, votes: Votes) -> None:
        """Keeps the votes; they are committed within about a second."""
        self._pending.setdefault((votes.position, votes.phase), []).append(votes)
        if monotonic() - self._committed_at > COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Writes what is pending; after this returns, kill -9 loses none of it. Any thread may call it."""
        with self._committing:
            if not self._db.in_transaction:
                return  # SQLite has rolled back on its own, as it does on a full disk: nothing goes in without the rest
            self._write_pending()
            with sqlite_errors(self.path):
                if self._used:
                    self._db.execute("COMMIT")
                else:
                    commit_first(self._db)
                    self._used = True
                self._require_in_place()
                self._db.execute("BEGIN IMMEDIATE")
            self._committed_at = monotonic()

    def _write_pending(self) -> None:
        """All of it, or nothing where it is interrupted: the next commit writes it then."""
        self._db.execute("SAVEPOINT pending")
        try:
            self.write_votes(votes for pending in self._pending.values() for votes in self._joined(pending))
            self._pending = {}
        except BaseException:
            if self._pending and self._db.in_transaction:
                self._db.execute("ROLLBACK TO pending")
            raise

    def _require_in_place(self) -> None:
        """Says so where the file was moved, replaced or removed meanwhile; all that was committed is in a file."""
        held = self._held
        if held is None or held.in_place:
            return
        if not self._gone and held.named:
            self._gone = (
                f"{self.path} was moved while it was written: go on under its new name, it has all that was drawn."
            )
        elif not self._gone:
            copy = unpredictable(held.path, "saved-{}.smoothcert")
            self._db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
            self._db.execute("VACUUM INTO ?", (str(copy),))
            self._gone = f"{self.path} was replaced or removed while it was written: all that was drawn is in {copy}."
        raise RunError(self._gone)

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

    def discard(self) -> None:
        """Has the file removed when it is closed: nothing was drawn."""
        self._unwanted = True

    # ---- reading

    @property
    def drawn(self) -> bool:
        """Does it hold any votes or claims that are committed or written?"""
        with sqlite_errors(self.path):
            found = self._db.execute("SELECT EXISTS (SELECT 1 FROM votes) OR EXISTS (SELECT 1 FROM claims)")
            return bool(found.fetchone()[0])

    def count_inputs(self) -> int:
        with sqlite_errors(self.path):
            return int(self._db.execute("SELECT count(*) FROM inputs").fetchone()[0])

    def input(self, position: int) -> InputRecord | None:
        """What is kept of an input, checked."""
        select = f"SELECT {input_columns(self._db)} FROM inputs WHERE position = ?"
        with sqlite_errors(self.path):
            row = self._db.execute(select, (position,)).fetchone()
        return None if row is None else self._record(row)

    def inputs(self) -> list[InputRecord]:
        """What is kept of each input, in order, checked."""
        rows = self._by_position(input_columns(self._db), "inputs")
        return [self._record(row) for row in rows]

    def _record(self, row: tuple[Any, ...]) -> InputRecord:
        record = self._checked(schema.unpack_input, row)
        if self.plan and not 0 <= record.label < self.plan.classifier.num_classes:
            raise RunError(damaged(self.path, f"a label that there is not for input number {record.position}"))
        return record

    def thumbnail(self, position: int) -> bytes | None:
        with sqlite_errors(self.path):
            found = self._db.execute("SELECT thumbnail FROM inputs WHERE position = ?", (position,))
            return next((row[0] for row in self._ration(found)), None)

    def claims(self) -> list[Claim]:
        """What was claimed of inputs, in order: by the rule that ended their draws, or by an imported log.

        Where a rule ended the draws, the votes that it saw are there.
        """
        claims = [self._checked(schema.unpack_claim, row) for row in self._by_position("*", "claims")]
        plan = self.plan
        if not plan or not claims:
            return claims
        radii_only, clean = self.info.radii_only, self.clean() if plan.classifier.is_bare else None
        for claim in claims:
            of_model = clean is None or claim.prediction in (ABSTAIN, clean.get(claim.position))
            if not of_model or not claim_fits(claim, plan, radii_only):
                raise RunError(damaged(self.path, f"a claim that cannot be for input number {claim.position}"))
        if plan.adaptive:
            drawn = self.draws()
            for claim in claims:
                if sum(drawn.get(claim.position, ())) != plan.question.n0 + claim.n:
                    raise RunError(damaged(self.path, f"a claim without its votes for input number {claim.position}"))
        return claims

    def check_claims(self, claims: Iterable[Claim]) -> None:
        """Refuses those that the rule cannot have made of the votes of their inputs, whose rows are known to fit."""
        plan, of_input = self.plan, {claim.position: claim for claim in claims}
        if plan is None or plan.rule is None:
            return
        rule, n0 = plan.rule, plan.question.n0
        with sqlite_errors(self.path):
            for position, rows in groupby(self._vote_rows(), key=itemgetter(0)):
                votes = [self._checked(schema.unpack, row) for row in rows] if position in of_input else []
                if votes and not bears(rule, n0, of_input[position], votes):
                    raise RunError(
                        damaged(self.path, f"a claim that its votes do not bear for input number {position}")
                    )

    def constants(self) -> dict[int, float]:
        """The estimated Lipschitz constants of inputs, by position; files of format 1 have none."""
        if self._version < 2:
            return {}
        return dict(self._checked(schema.unpack_constant, row) for row in self._by_position("*", "constants"))

    def draws(self) -> dict[int, tuple[float, float]]:
        """How many draws there are of the selection and of the estimation sample, by position."""
        samples = ", ".join(f"total((phase = '{phase.value}') * draws)" for phase in STORED)
        rows = self._by_position(f"position, {samples}", "votes GROUP BY position")
        return {position: (selection, estimation) for position, selection, estimation in rows}

    def clean(self) -> dict[int, int]:
        """The classes of inputs without noise, by position; older files have none."""
        if self._version < 3:
            return {}
        with sqlite_errors(self.path):
            rows = list(self._ascending(self._db.execute("SELECT * FROM clean ORDER BY position")))
        known = dict(self._checked(schema.unpack_clean, row) for row in rows)
        if self.plan and any(k >= self.plan.classifier.num_classes for k in known.values()):
            raise RunError(damaged(self.path, "a class without noise that there is not"))
        return known

    def votes(self) -> Iterator[Votes]:
        """Every stored row, checked: its checksum, its total, and that it fits the rows before it.

        Those of an input come in the order in which they were drawn.
        """
        before = NOTHING
        with sqlite_errors(self.path):
            for row in self._vote_rows():
                votes = self._checked(schema.unpack, row)
                key = Keys.of(votes)
                if self.plan is None or not fit(key, self.plan, before):
                    raise RunError(damaged(self.path, "rows that contradict each other"))
                before = end_of(key)
                yield votes

    def tally(self, known: NDArray[np.int64], kept: NDArray[np.int64]) -> Tally:
        """The votes of the inputs at the positions that are kept, added up; those of all that are known are checked."""
        plan = self.plan
        assert plan is not None
        if not plan.classifier.votes.soft:
            with sqlite_errors(self.path):
                counted = read_counts(self._vote_rows(), plan, known, kept)
            if counted is not None:
                return counted
        positions, index = set(known.tolist()), {position: i for i, position in enumerate(kept.tolist())}
        m, c = len(kept), plan.classifier.num_classes
        tally = Tally.zeros(m, c, plan.classifier.votes.others(m, c))
        for votes in self.votes():
            if votes.position not in positions:
                raise RunError(damaged(self.path, f"votes for an unknown input number {votes.position}"))
            if votes.position in index:
                tally.add(votes, index[votes.position], int(votes.phase is Phase.ESTIMATION))
        return tally

    def _vote_rows(self) -> Iterator[tuple[Any, ...]]:
        """Rows of votes by position, the selection first, then by block; sorted here, where they are rationed."""
        rows = self._ration(self._db.execute("SELECT * FROM votes ORDER BY position, phase, first"))
        inputs = ((position, list(of_input)) for position, of_input in groupby(rows, key=itemgetter(0)))
        for _, of_input in self._ascending(inputs):
            yield from sorted(of_input, key=lambda row: row[1] != Phase.SELECTION.value)

    def _by_position(self, columns: str, table: str) -> list[tuple[Any, ...]]:
        """The rows of a table that has one for each input."""
        with sqlite_errors(self.path):
            rows = self._ration(self._db.execute(f"SELECT {columns} FROM {table} ORDER BY position"))
            return list(self._ascending(rows))

    def _ascending(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """In a damaged tree of pages they may come in another order, or again."""
        before = -math.inf
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
