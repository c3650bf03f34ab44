"""The layout of a run file: one SQLite database a run."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.checks import MOST_DRAWS
from smoothcert.errors import RunError
from smoothcert.plan import Plan
from smoothcert.plan.question import GIVEN, PRODUCT
from smoothcert.records import is_number, record, restore
from smoothcert.sampling.blocks import Beside, Claim, Phase, Soft, Votes
from smoothcert.sampling.duels import Lost
from smoothcert.sampling.margins import POINTS, Spread
from smoothcert.store.older import OLDER_TABLES, flat_plan, with_stream
from smoothcert.text import printable

APPLICATION_ID = 0x736D6365  # "smce"
WRITING = 0x736D6377  # "smcw", while it is being written and its log belongs to it
VERSION = 3
MOST_SECONDS = 1e8
MOST_RADIUS = 1e32
"""Above any Φ⁻¹(p) times the largest σ; a larger radius is kept as this one."""

MOST_TEXT = 1 << 16
SPREAD = np.dtype([("classes", "<u4"), ("rivals", "<u4"), ("points", "<u2"), ("weights", "<u8")])

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
CREATE TABLE clean (position INTEGER PRIMARY KEY, class INTEGER NOT NULL, checksum BLOB NOT NULL);
"""

MIGRATIONS: Mapping[int, str] = {
    1: """
    ALTER TABLE inputs ADD COLUMN checksum BLOB;
    CREATE TABLE constants (position INTEGER PRIMARY KEY, value REAL NOT NULL, checksum BLOB NOT NULL);
    """,
    2: "CREATE TABLE clean (position INTEGER PRIMARY KEY, class INTEGER NOT NULL, checksum BLOB NOT NULL)",
}
"""SQL that brings a file of version k to version k + 1, so that older files open."""

SPACE = re.compile("[ \\t\\n\\f\\r]+")
"""Between words, for SQLite: a space that is not in ASCII is a letter to it."""

Layout = frozenset[tuple[str, ...]]
PHASES = {phase.value for phase in Phase}


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


@dataclass(frozen=True)
class InputRecord:
    """What is kept of an input: its number in the run, its id and label in the data, and a hash of its values."""

    position: int
    id: str
    label: int
    digest: str | None = None


class InputsHash:
    """A hash of inputs in their order: of id, label and values of each, and of nothing else."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, record: InputRecord) -> None:
        self._digest.update(f"{record.id}\0{record.label}\0{record.digest}\n".encode())

    @property
    def fingerprint(self) -> str:
        return f"inputs-1:{self._digest.hexdigest()}"


def to_json(written: Plan | Info) -> str:
    return json.dumps(record(written))


def plan_from_json(text: str, version: int) -> Plan:
    """The plan of a file of this format. What is read is of the declared types and of a possible size, or refused: a
    checksum tells damage and not malice."""
    values = _shown(json.loads(text))
    plan = flat_plan(values) if version < 3 else restore(Plan, with_stream(values))
    plan.question.about(plan.classifier)
    if plan.classifier.votes.is_open:
        raise ValueError("votes without their width")
    if plan.question.source in (GIVEN, PRODUCT) and plan.constant is None:
        raise ValueError("no constant, although one is given or proved")
    return plan


def info_from_json(text: str) -> Info:
    return restore(Info, _shown(json.loads(text)))


def _shown(value: Any) -> Any:
    """With all text made fit to be shown, and cut where it would go on without end."""
    if isinstance(value, list):
        return tuple(map(_shown, value))
    if isinstance(value, dict):
        return {_shown(key): _shown(entry) for key, entry in value.items()}
    return printable(value[:MOST_TEXT]) if isinstance(value, str) else value


def pack_input(record: InputRecord, thumbnail: bytes | None) -> tuple[Any, ...]:
    """What is kept of an input as a row of the table, with a checksum."""
    values = (record.position, record.id, record.label, record.digest)
    return (*values, thumbnail, _checksum(values))


def unpack_input(row: tuple[Any, ...]) -> InputRecord:
    """What is kept of the input of a row that ends with its checksum, which files of format 1 do not have."""
    position, id, label, digest, *checksum = row
    typed = isinstance(position, int) and isinstance(id, str) and isinstance(label, int) and printable(id) == id
    if not typed or checksum not in ([], [_checksum(row[:4])]):
        raise RunError(f"a damaged record of input number {position}")
    return InputRecord(position, id, label, digest)


def pack(votes: Votes) -> tuple[Any, ...]:
    """Votes as a row of the table, with a checksum over all of it."""
    pairs = np.stack([votes.classes, votes.counts], axis=1).astype("<u4").tobytes()
    key = (votes.position, votes.phase.value, votes.first, votes.last, votes.draws)
    beside = None if votes.beside is None else _pack_beside(votes.beside)
    return (*key, pairs, beside, votes.seconds, _checksum(key, pairs + (beside or b"")))


def unpack(row: tuple[Any, ...]) -> Votes:
    """The votes of a row, or an error where its checksum or its length is wrong."""
    if not is_intact(row):
        raise RunError(f"damaged votes for input number {row[0]}")
    position, phase, first, last, draws, pairs, blob, seconds, _ = row
    classes, counts = np.frombuffer(pairs, dtype="<u4").reshape(-1, 2).T.astype(np.int64)
    beside = None if blob is None else _unpack_beside(blob)
    return Votes(position, Phase(phase), first, last, draws, classes, counts, seconds, beside)


def is_intact(row: tuple[Any, ...]) -> bool:
    """Is the checksum of a row of votes right, and is the row one that `pack` could have made?"""
    if len(row) != 9:
        return False
    position, phase, first, last, draws, pairs, beside, seconds, checksum = row
    whole = isinstance(pairs, bytes) and len(pairs) % 8 == 0 and isinstance(beside, bytes | None)
    if not (whole and pairs and _checksum(row[:5], pairs + (beside or b"")) == checksum):
        return False
    numbers = isinstance(position, int) and isinstance(draws, int) and isinstance(first, int) and isinstance(last, int)
    return (
        numbers
        and phase in PHASES
        and 0 <= first < last <= MOST_DRAWS
        and (beside is None or is_lost(beside) or is_spread(beside) or len(beside) % 24 == 8)
        and is_number(seconds)
        and 0 <= seconds <= MOST_SECONDS
    )


def is_lost(beside: bytes) -> bool:
    """Are these lost duels, 12 bytes each? Sums of shares take 8 bytes and 24 a class, which is never that."""
    return len(beside) % 12 == 0 and len(beside) > 0


def is_spread(beside: bytes) -> bool:
    """Are these margin votes, a byte that says how many points there are and 18 a weight? No other length is odd."""
    return len(beside) % SPREAD.itemsize == 1 and beside[0] == POINTS and len(beside) > 1


def _pack_beside(beside: Beside) -> bytes:
    """Lost duels as class, rival and count, little-endian uint32; margin votes as `SPREAD`, behind a byte; of shares
    the candidate, sums, squares and products, as little-endian int64."""
    if isinstance(beside, Spread):
        entries = np.empty(len(beside.weights), dtype=SPREAD)
        for name in SPREAD.names or ():
            entries[name] = getattr(beside, name)
        return bytes([POINTS]) + entries.tobytes()
    if isinstance(beside, Lost):
        return np.stack([beside.classes, beside.rivals, beside.counts], axis=1).astype("<u4").tobytes()
    assert isinstance(beside, Soft)
    return np.concatenate([[beside.candidate], beside.sums, beside.squares, beside.products]).astype("<i8").tobytes()


def _unpack_beside(data: bytes) -> Beside:
    if is_lost(data):
        return Lost(*unpack_lost(data))
    if is_spread(data):
        entries = np.frombuffer(data, dtype=SPREAD, offset=1)
        return Spread(*(entries[name].astype(np.int64) for name in SPREAD.names or ()))
    numbers = np.frombuffer(data, dtype="<i8").astype(np.int64)
    return Soft(int(numbers[0]), *np.split(numbers[1:], 3))


def unpack_lost(data: bytes) -> NDArray[np.int64]:
    """The columns class, rival and count of lost duels."""
    return np.frombuffer(data, dtype="<u4").reshape(-1, 3).T.astype(np.int64)


def pack_claim(claim: Claim) -> tuple[Any, ...]:
    """A claim as a row of its table, with a checksum."""
    values = (claim.position, claim.prediction, min(claim.radius, MOST_RADIUS), claim.n, claim.seconds)
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
        whole
        and n >= 0
        and is_number(radius)
        and 0 <= radius <= MOST_RADIUS
        and is_number(seconds)
        and 0 <= seconds <= MOST_SECONDS
    )


def pack_constant(position: int, value: float) -> tuple[Any, ...]:
    """The local Lipschitz constant of an input, estimated, as a row of its table, with a checksum."""
    return position, value, _checksum((position, value))


def unpack_constant(row: tuple[Any, ...]) -> tuple[int, float]:
    """The position and the constant of a row, or an error where its checksum is wrong."""
    position, value, checksum = row
    if _checksum((position, value)) != checksum or not is_number(value) or value <= 0:
        raise RunError(f"a damaged constant for input number {position}")
    return position, value


def pack_clean(position: int, k: int) -> tuple[Any, ...]:
    """The class of an input without noise as a row of its table, with a checksum."""
    return position, k, _checksum((position, k))


def unpack_clean(row: tuple[Any, ...]) -> tuple[int, int]:
    """The position and the class of a row, or an error where its checksum is wrong."""
    position, k, checksum = row
    if _checksum((position, k)) != checksum or not isinstance(k, int) or k < 0:
        raise RunError(f"a damaged class without noise for input number {position}")
    return position, k


def meta_checksum(meta: Mapping[str, str]) -> str:
    """A checksum over the record of the run."""
    return _checksum(tuple(sorted(meta.items()))).hex()


def _checksum(values: tuple[Any, ...], pairs: bytes = b"") -> bytes:
    return hashlib.blake2b(repr(values).encode() + pairs, digest_size=8).digest()


def create(connection: sqlite3.Connection, version: int = VERSION) -> None:
    """Makes the tables; the caller holds the transaction."""
    _execute(connection, TABLES if version == VERSION else OLDER_TABLES[version])
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {version}")


def migrate(connection: sqlite3.Connection, version: int = VERSION) -> None:
    """Brings a file of an older version up to this one."""
    for older in range(connection.execute("PRAGMA user_version").fetchone()[0], version):
        _execute(connection, MIGRATIONS[older])
        if older == 1:
            _add_checksums(connection)
        if older == 2:
            _write_nouns(connection)
    connection.execute(f"PRAGMA user_version = {version}")


def _execute(connection: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";"):
        connection.execute(statement)


def layout_of(connection: sqlite3.Connection) -> Layout:
    """All that a file declares, word by word: tables, and what could be SQL of its own that runs when it is read."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    return frozenset(tuple(SPACE.sub(" ", str(text)).strip(" ") for text in row) for row in rows)


@cache
def layouts(version: int) -> frozenset[Layout]:
    """What a file of this format can declare: made in it, or brought up to it from an older one."""
    found = set()
    for made in range(1, version + 1):
        with closing(sqlite3.connect(":memory:")) as connection:
            create(connection, made)
            migrate(connection, version)
            found.add(layout_of(connection))
    return frozenset(found)


def _add_checksums(connection: sqlite3.Connection) -> None:
    """Gives the plan and the inputs of a file of format 1 the checksums that they have since."""
    meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    if meta:
        connection.execute("INSERT INTO meta VALUES ('checksum', ?)", (meta_checksum(meta),))
    rows = connection.execute("SELECT position, id, label, digest FROM inputs").fetchall()
    connection.executemany("UPDATE inputs SET checksum = ? WHERE position = ?", [(_checksum(r), r[0]) for r in rows])


def _write_nouns(connection: sqlite3.Connection) -> None:
    """Writes the plan of a file of format 2 as the four nouns that it is since."""
    meta = dict(connection.execute("SELECT key, value FROM meta WHERE key != 'checksum'").fetchall())
    if "plan" in meta:
        meta["plan"] = to_json(plan_from_json(meta["plan"], 2))
        connection.execute("UPDATE meta SET value = ? WHERE key = 'plan'", (meta["plan"],))
        connection.execute("UPDATE meta SET value = ? WHERE key = 'checksum'", (meta_checksum(meta),))
