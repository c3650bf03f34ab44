"""The layout of a run file: one SQLite database a run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from smoothcert.bounds import METHODS, SOFT_METHODS
from smoothcert.bounds.sequential import SequentialPlan
from smoothcert.checks import NOISES, less_error
from smoothcert.errors import RunError
from smoothcert.sampling.blocks import Claim, Phase, Soft, Votes
from smoothcert.sampling.simplex import HARD, VOTES, component_constant
from smoothcert.text import printable

APPLICATION_ID = 0x736D6365  # "smce"
VERSION = 2
ADAPTIVE = "adaptive"
MOST_CLASSES, MOST_INPUTS, MOST_DRAWS = 1 << 20, 1 << 31, 1 << 40
MOST_SECONDS = 1e8

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

PHASES = {phase.value for phase in Phase}


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
    """The record, leaving out fields that a newer version added; lists become tuples, and all text can be shown.

    A checksum tells damage and not malice: what is read is of the declared types and of a possible size, or refused.
    """
    kinds = get_type_hints(kind)
    values = {k: _shown(v) for k, v in json.loads(text).items() if k in kinds}
    if not all(_is_of(value, kinds[name]) for name, value in values.items()):
        raise ValueError("a value of another type")
    record = kind(**values)
    if isinstance(record, Plan) and not is_possible(record):
        raise ValueError("a number out of range")
    return record


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_shown, value))
    if isinstance(value, dict):
        return {_shown(key): _shown(entry) for key, entry in value.items()}
    return printable(value) if isinstance(value, str) else value


def _is_of(value: Any, kind: Any) -> bool:
    """Is it of the annotated type? Numbers are finite."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return any(_is_of(value, choice) for choice in inner)
    if origin is tuple:
        long = inner[-1] is ... or len(inner) == len(value if isinstance(value, tuple) else ())
        return isinstance(value, tuple) and long and all(_is_of(entry, inner[0]) for entry in value)
    if origin is dict:
        return isinstance(value, dict) and all(_is_of(entry, inner[1]) for entry in value.values())
    if kind is float:
        return _is_number(value)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _is_number(value: Any) -> bool:
    """An int or a float that a float can hold."""
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64
    return whole or (isinstance(value, float) and math.isfinite(value))


def is_possible(plan: Plan) -> bool:
    """Could a run have been declared so?"""
    at_least_0 = plan.total, plan.batch, plan.noise_error
    at_least_1 = plan.n0, plan.n, plan.skip, plan.num_classes, plan.levels or 1, *(plan.shard or ())
    positive = plan.sigma, plan.temperature, plan.futility or 1, plan.constant or 1, plan.width or 1, *plan.radii
    return (
        min(at_least_0) >= 0
        and min(at_least_1) >= 1
        and min(positive) > 0
        and plan.noise_error < plan.alpha < 1
        and plan.num_classes <= MOST_CLASSES
        and plan.total <= MOST_INPUTS
        and max(plan.n0, plan.n) <= MOST_DRAWS
        and plan.noise in NOISES
        and plan.votes in VOTES
        and plan.method in (*METHODS, *SOFT_METHODS, ADAPTIVE)
    )


def pack_input(values: tuple[int, str, int, str | None], thumbnail: bytes | None) -> tuple[Any, ...]:
    """(position, id, label, digest) as a row of the table, with a checksum."""
    return (*values, thumbnail, _checksum(values))


def unpack_input(row: tuple[Any, ...]) -> tuple[int, str, int, str | None]:
    """(position, id, label, digest) of a row that ends with its checksum, which files of format 1 do not have."""
    position, id, label, digest, *checksum = row
    typed = isinstance(position, int) and isinstance(id, str) and isinstance(label, int) and printable(id) == id
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
    """Is the checksum of a row of votes right, and is the row one that `pack` could have made?"""
    if len(row) != 9:
        return False
    position, phase, first, last, draws, pairs, soft, seconds, checksum = row
    whole = isinstance(pairs, bytes) and len(pairs) % 8 == 0 and isinstance(soft, bytes | None)
    if not (whole and pairs and _checksum(row[:5], pairs + (soft or b"")) == checksum):
        return False
    numbers = isinstance(position, int) and isinstance(draws, int) and isinstance(first, int) and isinstance(last, int)
    return (
        numbers
        and phase in PHASES
        and 0 <= first < last <= MOST_DRAWS
        and (soft is None or len(soft) % 24 == 8)
        and _is_number(seconds)
        and 0 <= seconds <= MOST_SECONDS
    )


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
    if _checksum(tuple(values)) != checksum or not _is_claim(*values):
        raise RunError(f"a damaged claim for input number {values[0]}")
    return Claim(*values)


def _is_claim(position: Any, prediction: Any, radius: Any, n: Any, seconds: Any) -> bool:
    whole = isinstance(prediction, int) and isinstance(n, int)
    return (
        whole and n >= 0 and _is_number(radius) and radius >= 0 and _is_number(seconds) and 0 <= seconds <= MOST_SECONDS
    )


def pack_constant(position: int, value: float) -> tuple[Any, ...]:
    """The local Lipschitz constant of an input, estimated, as a row of its table, with a checksum."""
    return position, value, _checksum((position, value))


def unpack_constant(row: tuple[Any, ...]) -> tuple[int, float]:
    """The position and the constant of a row, or an error where its checksum is wrong."""
    position, value, checksum = row
    if _checksum((position, value)) != checksum or not _is_number(value) or value <= 0:
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
