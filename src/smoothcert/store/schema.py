"""The layout of a run file: one SQLite database a run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from smoothcert.bounds.sequential import SequentialPlan
from smoothcert.errors import RunError
from smoothcert.sampling.blocks import Claim, Phase, Votes

APPLICATION_ID = 0x736D6365  # "smce"
VERSION = 1

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE inputs (
    position INTEGER PRIMARY KEY, id TEXT NOT NULL, label INTEGER NOT NULL, digest TEXT, thumbnail BLOB);
CREATE TABLE votes (
    position INTEGER NOT NULL, phase TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    draws INTEGER NOT NULL, counts BLOB NOT NULL, soft BLOB, seconds REAL NOT NULL, checksum BLOB NOT NULL,
    PRIMARY KEY (position, phase, first)) WITHOUT ROWID;
CREATE TABLE claims (
    position INTEGER PRIMARY KEY, prediction INTEGER NOT NULL, radius REAL NOT NULL, n INTEGER NOT NULL,
    seconds REAL NOT NULL, checksum BLOB NOT NULL);
"""

MIGRATIONS: Mapping[int, str] = {}
"""SQL that brings a file of version k to version k + 1, so that older files open."""


@dataclass(frozen=True)
class Plan:
    """What was declared before the first draw. A run is resumed only under an equal plan."""

    method: str
    alpha: float
    n0: int
    n: int
    sigma: float
    noise: str
    seed: int
    num_classes: int
    model: str
    engine: str
    batch: int
    data: str
    preprocessing: str
    skip: int
    limit: int | None
    total: int
    radii: tuple[float, ...] = ()
    width: float | None = None
    futility: float | None = None

    @property
    def sequential(self) -> SequentialPlan | None:
        """What decides when an input has enough draws; None where all have n."""
        if self.futility is None:
            return None
        return SequentialPlan(self.sigma, self.radii, self.width, self.alpha, self.n, self.futility)


@dataclass(frozen=True)
class Info:
    """What a reader wants to know and a resume need not equal."""

    created: str
    command: str
    model: str
    data: str
    classes: tuple[str, ...] | None
    versions: dict[str, str] = field(default_factory=dict)
    radii_only: bool = False


def to_json(record: Plan | Info) -> str:
    return json.dumps(dataclasses.asdict(record))


def from_json(kind: type[Any], text: str) -> Any:
    """The record, leaving out fields that a newer version added; lists become tuples."""
    values = json.loads(text)
    known = {f.name for f in dataclasses.fields(kind)}
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items() if k in known})


def pack(votes: Votes) -> tuple[Any, ...]:
    """Votes as a row of the table, with a checksum over all of it."""
    pairs = np.stack([votes.classes, votes.counts], axis=1).astype("<u4").tobytes()
    key = (votes.position, votes.phase.value, votes.first, votes.last, votes.draws)
    return (*key, pairs, None, votes.seconds, _checksum(key, pairs))


def unpack(row: tuple[Any, ...]) -> Votes:
    """The votes of a row, or an error where its checksum, its length or its total is wrong."""
    *key, pairs, _, seconds, checksum = row
    position, phase, first, last, draws = key
    if not isinstance(pairs, bytes) or len(pairs) % 8 or _checksum(tuple(key), pairs) != checksum:
        raise RunError(f"damaged votes for input number {position}")
    classes, counts = np.frombuffer(pairs, dtype="<u4").reshape(-1, 2).T.astype(np.int64)
    if counts.sum() != draws:
        raise RunError(f"damaged votes for input number {position}")
    return Votes(position, Phase(phase), first, last, draws, classes, counts, seconds)


def pack_claim(claim: Claim) -> tuple[Any, ...]:
    """A claim as a row of its table, with a checksum."""
    values = dataclasses.astuple(claim)
    return (*values, _checksum(values))


def unpack_claim(row: tuple[Any, ...]) -> Claim:
    """The claim of a row, or an error where its checksum is wrong."""
    *values, checksum = row
    if _checksum(tuple(values)) != checksum:
        raise RunError(f"a damaged claim for input number {values[0]}")
    return Claim(*values)


def _checksum(values: tuple[Any, ...], pairs: bytes = b"") -> bytes:
    return hashlib.blake2b(repr(values).encode() + pairs, digest_size=8).digest()


def create(connection: sqlite3.Connection) -> None:
    """Makes the tables; the caller holds the transaction."""
    for statement in TABLES.split(";"):
        if statement.strip():
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def migrate(connection: sqlite3.Connection) -> None:
    """Brings a file of an older version up to this one."""
    for version in range(connection.execute("PRAGMA user_version").fetchone()[0], VERSION):
        connection.execute(MIGRATIONS[version])
    connection.execute(f"PRAGMA user_version = {VERSION}")
