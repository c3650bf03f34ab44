"""What is wrong with a run file, and what of it is intact. The file itself is never changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.errors import RunError
from smoothcert.plan import Plan, bears
from smoothcert.sampling.blocks import Claim, Votes
from smoothcert.store import schema
from smoothcert.store.counts import check_size
from smoothcert.store.file import Opened, RunFile
from smoothcert.store.new_run import new_run
from smoothcert.store.opening import (
    LEAST_BYTES,
    READINGS,
    SQLITE_ERRORS,
    Ration,
    check_pages,
    input_columns,
    replaced,
    size_of,
)
from smoothcert.store.rows import NOTHING, STORED, Keys, claim_fits, end_of, fit
from smoothcert.store.run import Run
from smoothcert.store.schema import InputRecord

Value = TypeVar("Value")


@dataclass(frozen=True)
class Diagnosis:
    """The faults of a file in plain words, and how many records of inputs and rows of votes are intact."""

    faults: tuple[str, ...]
    inputs: int = 0
    rows: int = 0

    @property
    def healthy(self) -> bool:
        return not self.faults


def diagnose(path: str | Path, out: str | Path | None = None) -> Diagnosis:
    """Checks pages, plan, every checksum and total, and for rows that contradict each other or lack under a claim.

    What is intact is copied to the new file `out`, with which certify goes on: it draws what is missing.
    """
    path = Path(path)
    with ExitStack() as stack:
        try:
            file = stack.enter_context(RunFile.open_to_read(path))
            plan = file.plan
            if plan is None:
                return Diagnosis(("It holds no plan: certify again into a new file.",))
            check_size(path, plan.selection.total, plan.classifier.num_classes)
            info, rejected = file.info, file.rejected
        except RunError as error:
            return Diagnosis((str(error), "Without its plan nothing can be saved: certify again into a new file."))
        faults = list(_faulty_pages(file.connection))
        size = size_of(path.resolve())
        ward = _Ward(file.connection, plan, info.radii_only, Ration(READINGS * size))
        copy = stack.enter_context(new_run(Path(out), plan, info)) if out else None
        inputs = rows = 0
        for position in range(min(plan.selection.total, size // LEAST_BYTES)):
            found = ward.examine(position)
            faults += (f"Input number {position} has {fault}." for fault in found.faults)
            if found.record is None:
                continue
            inputs, rows = inputs + 1, rows + len(found.votes)
            if copy:
                copy.add_input(found.record, found.thumbnail)
                copy.write_votes(found.votes)
                if found.claim:
                    copy.add_claim(found.claim)
                if found.constant:
                    copy.add_constants(dict([found.constant]))
                if found.clean:
                    copy.add_clean(dict([found.clean]))
        if copy and rejected:
            copy.reject(rejected)
    return Diagnosis(tuple(faults or _faults_of_the_whole(path, file.opened)), inputs, rows)


def _faulty_pages(connection: sqlite3.Connection) -> Iterator[str]:
    """SQLite's own report, the first line of it."""
    try:
        check_pages(connection, "integrity_check")
    except SQLITE_ERRORS as error:
        yield f"SQLite finds damaged pages ({str(error).splitlines()[-1]})."


def _faults_of_the_whole(path: Path, opened: Opened) -> Iterator[str]:
    """What only reading everything shows, such as rows of inputs that the plan does not know."""
    try:
        run = Run(path)
        if run.opened != opened:
            raise RunError(replaced(path))
        len(run)
    except RunError as error:
        yield str(error)


@dataclass(frozen=True)
class _Findings:
    """What is intact of an input, and what is not; without a record nothing is."""

    record: InputRecord | None
    thumbnail: bytes | None
    votes: list[Votes]
    claim: Claim | None
    constant: tuple[int, float] | None
    clean: tuple[int, int] | None
    faults: list[str]


class _Ward:
    """Reads an input at a time, by key: a damaged page costs the rows on it, not those behind it."""

    def __init__(self, connection: sqlite3.Connection, plan: Plan, radii_only: bool, ration: Ration) -> None:
        self.db, self.plan, self.radii_only, self.ration = connection, plan, radii_only, ration
        self.rule = plan.rule
        self.columns = input_columns(connection)
        self.has_clean = connection.execute("PRAGMA user_version").fetchone()[0] >= 3

    def examine(self, position: int) -> _Findings:
        faults: list[str] = []
        select = f"SELECT {self.columns} FROM inputs WHERE position = ?"
        record = self._one(schema.unpack_input, select, position, faults)
        picture = self._one(lambda row: row[0], "SELECT thumbnail FROM inputs WHERE position = ?", position, faults)
        votes = list(self._votes(position, faults))
        claim = self._one(schema.unpack_claim, "SELECT * FROM claims WHERE position = ?", position, faults)
        constant = None
        if self.plan.question.lipschitz:
            constant = self._one(schema.unpack_constant, "SELECT * FROM constants WHERE position = ?", position, faults)
        clean = None
        if self.has_clean:
            clean = self._one(schema.unpack_clean, "SELECT * FROM clean WHERE position = ?", position, faults)
        drawn = sum(v.draws for v in votes)
        if claim and self.plan.adaptive and drawn != self.plan.question.n0 + claim.n:
            faults.append("a claim without its votes")
            claim = None
        if claim and self.rule and not bears(self.rule, self.plan.question.n0, claim, votes):
            faults.append("a claim that its votes do not bear")
            claim = None
        if record and not 0 <= record.label < self.plan.classifier.num_classes:
            faults.append("a label that there is not")
            record = None
        if clean and clean[1] >= self.plan.classifier.num_classes:
            faults.append("a class without noise that there is not")
            clean = None
        of_model = not self.plan.classifier.is_bare or (claim and claim.prediction in (ABSTAIN, clean and clean[1]))
        if claim and not (of_model and claim_fits(claim, self.plan, self.radii_only)):
            faults.append("a claim that cannot be")
            claim = None
        if claim is None and self.plan.classifier.is_bare:
            clean = None  # both are computed at once
        if self.radii_only and claim is None:
            record = None
        if votes and record is None:
            faults.append("votes and no record of what it is")
        return _Findings(record, picture, votes, claim, constant, clean, list(dict.fromkeys(faults)))

    def _votes(self, position: int, faults: list[str]) -> Iterator[Votes]:
        """The rows that can be counted together, in the order in which they were drawn."""
        before = NOTHING
        for phase in STORED:
            select = "SELECT * FROM votes WHERE position = ? AND phase = ? ORDER BY first"
            for row in self._rows(select, (position, phase.value), faults):
                votes = _unpacked(schema.unpack, row, faults)
                if votes and not fit(Keys.of(votes), self.plan, before):
                    faults.append("votes that contradict others or follow on lost ones")
                elif votes:
                    before = end_of(Keys.of(votes))
                    yield votes

    def _one(
        self, unpack: Callable[[tuple[Any, ...]], Value], select: str, position: int, faults: list[str]
    ) -> Value | None:
        rows = self._rows(select, (position,), faults)
        return _unpacked(unpack, rows[0], faults) if rows else None

    def _rows(self, select: str, key: tuple[Any, ...], faults: list[str]) -> list[tuple[Any, ...]]:
        """The rows up to a damaged page, and those behind it, found from the other end."""
        rows, whole = self._until_damage(select, key)
        if not whole:
            faults.append("rows on a damaged page")
            if "ORDER BY" in select:
                rows += reversed(self._until_damage(f"{select} DESC", key)[0])
        return rows

    def _until_damage(self, select: str, key: tuple[Any, ...]) -> tuple[list[tuple[Any, ...]], bool]:
        rows: list[tuple[Any, ...]] = []
        try:
            for row in self.ration(self.db.execute(select, key)):
                rows.append(row)
        except SQLITE_ERRORS:
            return rows, False
        return rows, True


def _unpacked(unpack: Callable[[tuple[Any, ...]], Value], row: tuple[Any, ...], faults: list[str]) -> Value | None:
    try:
        return unpack(row)
    except RunError as error:
        faults.append(str(error).partition(" for input")[0])
        return None
