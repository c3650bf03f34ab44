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
from smoothcert.checks import less_error
from smoothcert.errors import RunError
from smoothcert.sampling.blocks import Claim, Phase, Soft, Votes
from smoothcert.sampling.simplex import HARD, component_constant

APPLICATION_ID = 0x736D6365  # "smce"
VERSION = 2

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE inputs (
    position INTEGER PRIMARY KEY, id TEXT NOT NULL, label INTEGER NOT NULL, digest TEXT, thumbnail BLOB,
    checksum BLOB);
CREATE TABLE votes (
    position INTEGER NOT NULL, phase TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    draws INTEGER NOT NULL, counts BLOB NOT NULL, soft BLOB, seconds REAL NOT NULL, checksum BLOB NOT NULL,
    PRIMARY KEY (position, phase, first)) WITHOUT ROWID;
CREATE TABLE claims (
    position INTEGER PRIMARY KEY, prediction INTEGER NOT NULL, radius REAL NOT NULL, n INTEGER NOT NULL,
    seconds REAL NOT NULL, checksum BLOB NOT NULL);
CREATE TABLE constants (position INTEGER PRIMARY KEY, value REAL NOT NULL, checksum BLOB NOT NULL);
"""

MIGRATIONS: Mapping[int, str] = {
    1: """
    ALTER TABLE inputs ADD COLUMN checksum BLOB;
    CREATE TABLE constants (position INTEGER PRIMARY KEY, value REAL NOT NULL, checksum BLOB NOT NULL);
    """
}
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
    levels: int | None = None
    noise_error: float = 0.0
    shard: tuple[int, int] | None = None
    votes: str = HARD
    temperature: float = 1.0
    lipschitz: str | None = None
    constant: float | None = None

    @property
    def component_constant(self) -> float:
        """What a constant of the scores is to be multiplied by, for one of each class's share of a vote."""
        return component_constant(self.votes, self.temperature, self.num_classes)

    @property
    def level(self) -> float:
        """The level at which bounds are computed: α less the error of the noise."""
        return less_error(self.alpha, self.noise_error)

    @property
    def noise_in_words(self) -> str:
        """The kind of noise; of a grid also its step, and what its rounding costs."""
        if self.levels is None:
            return self.noise
        return f"{self.noise} of 1/{self.levels}, error {self.noise_error:.2g} taken off α: level {self.level:.10g}"

    @property
    def sequential(self) -> SequentialPlan | None:
        """What decides when an input has enough draws; None where all have n."""
        if self.futility is None:
            return None
        return SequentialPlan(self.sigma, self.radii, self.width, self.level, self.n, self.futility)


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


def pack_input(values: tuple[int, str, int, str | None], thumbnail: bytes | None) -> tuple[Any, ...]:
    """(position, id, label, digest) as a row of the table, with a checksum."""
    return (*values, thumbnail, _checksum(values))


def unpack_input(row: tuple[Any, ...]) -> tuple[int, str, int, str | None]:
    """(position, id, label, digest) of a row that ends with its checksum, which files of format 1 do not have."""
    position, id, label, digest, *checksum = row
    typed = isinstance(position, int) and isinstance(id, str) and isinstance(label, int)
    if not typed or checksum not in ([], [_checksum(row[:4])]):
        raise RunError(f"a damaged record of input number {position}")
    return position, id, label, digest


def pack(votes: Votes) -> tuple[Any, ...]:
    """Votes as a row of the table, with a checksum over all of it."""
    pairs = np.stack([votes.classes, votes.counts], axis=1).astype("<u4").tobytes()
    key = (votes.position, votes.phase.value, votes.first, votes.last, votes.draws)
    soft = None if votes.soft is None else _pack_soft(votes.soft)
    return (*key, pairs, soft, votes.seconds, _checksum(key, pairs + (soft or b"")))


def unpack(row: tuple[Any, ...]) -> Votes:
    """The votes of a row, or an error where its checksum, its length or its total is wrong."""
    if not is_intact(row):
        raise RunError(f"damaged votes for input number {row[0]}")
    position, phase, first, last, draws, pairs, soft, seconds, _ = row
    classes, counts = np.frombuffer(pairs, dtype="<u4").reshape(-1, 2).T.astype(np.int64)
    if counts.sum() != draws:
        raise RunError(f"damaged votes for input number {position}")
    shares = None if soft is None else _unpack_soft(soft)
    return Votes(position, Phase(phase), first, last, draws, classes, counts, seconds, shares)


def is_intact(row: tuple[Any, ...]) -> bool:
    """Is the checksum of a row of votes right?"""
    if len(row) != 9:
        return False
    pairs, soft, _, checksum = row[5:]
    whole = isinstance(pairs, bytes) and len(pairs) % 8 == 0 and isinstance(soft, bytes | None)
    return whole and _checksum(row[:5], pairs + (soft or b"")) == checksum


def _pack_soft(soft: Soft) -> bytes:
    """The candidate, then sums, squares and products, as little-endian int64."""
    return np.concatenate([[soft.candidate], soft.sums, soft.squares, soft.products]).astype("<i8").tobytes()


def _unpack_soft(data: bytes) -> Soft:
    numbers = np.frombuffer(data, dtype="<i8").astype(np.int64)
    return Soft(int(numbers[0]), *np.split(numbers[1:], 3))


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


def pack_constant(position: int, value: float) -> tuple[Any, ...]:
    """The local Lipschitz constant of an input, estimated, as a row of its table, with a checksum."""
    return position, value, _checksum((position, value))


def unpack_constant(row: tuple[Any, ...]) -> tuple[int, float]:
    """The position and the constant of a row, or an error where its checksum is wrong."""
    position, value, checksum = row
    if _checksum((position, value)) != checksum:
        raise RunError(f"a damaged constant for input number {position}")
    return position, value


def meta_checksum(meta: Mapping[str, str]) -> str:
    """A checksum over the record of the run."""
    return _checksum(tuple(sorted(meta.items()))).hex()


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
        for statement in MIGRATIONS[version].split(";"):
            connection.execute(statement)
        if version == 1:
            _add_checksums(connection)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _add_checksums(connection: sqlite3.Connection) -> None:
    """Gives the plan and the inputs of a file of format 1 the checksums that they have since."""
    meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    if meta:
        connection.execute("INSERT INTO meta VALUES ('checksum', ?)", (meta_checksum(meta),))
    rows = connection.execute("SELECT position, id, label, digest FROM inputs").fetchall()
    connection.executemany("UPDATE inputs SET checksum = ? WHERE position = ?", [(_checksum(r), r[0]) for r in rows])
