"""Run files from before: the tables of formats 1 and 2 and their plans, in which all that was declared stood side by
side, and plans of format 3 without a version of the noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smoothcert.options import AUTO
from smoothcert.plan import Classifier, Plan, Selection, Setting
from smoothcert.plan.draws import ADAPTIVE
from smoothcert.records import restore

_META_VOTES_AND_CLAIMS = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE votes (
    position INTEGER NOT NULL, phase TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    draws INTEGER NOT NULL, counts BLOB NOT NULL, soft BLOB, seconds REAL NOT NULL, checksum BLOB NOT NULL,
    PRIMARY KEY (position, phase, first)) WITHOUT ROWID;
CREATE TABLE claims (
    position INTEGER PRIMARY KEY, prediction INTEGER NOT NULL, radius REAL NOT NULL, n INTEGER NOT NULL,
    seconds REAL NOT NULL, checksum BLOB NOT NULL);
"""
OLDER_TABLES: Mapping[int, str] = {
    1: f"""{_META_VOTES_AND_CLAIMS}
CREATE TABLE inputs (
    position INTEGER PRIMARY KEY, id TEXT NOT NULL, label INTEGER NOT NULL, digest TEXT, thumbnail BLOB);
""",
    2: f"""{_META_VOTES_AND_CLAIMS}
CREATE TABLE inputs (
    position INTEGER PRIMARY KEY, id TEXT NOT NULL, label INTEGER NOT NULL, digest TEXT, thumbnail BLOB,
    checksum BLOB);
CREATE TABLE constants (position INTEGER PRIMARY KEY, value REAL NOT NULL, checksum BLOB NOT NULL);
""",
}
"""As they were written then: a file is opened only with the tables of its format, word by word."""


def flat_plan(values: Any) -> Plan:
    """The four nouns of such a plan."""
    if not isinstance(values, dict):
        raise ValueError("no record")
    known = {"futility": None, "radii": (), "width": None, "votes": "hard", "temperature": 1.0, **values}
    nouns = {
        "classifier": {**_take(known, Classifier), "votes": _votes(known)},
        "question": {"n0": known["n0"], "alpha": known["alpha"], "draws": _draws(known), "lipschitz": _constant(known)},
        "setting": {
            **_take(known, Setting),
            "stream": 1,
            "engine": _identity(known["engine"]),
            "batch": known["batch"] or AUTO,
        },
        "selection": _take(known, Selection),
        **{name: known[name] for name in ("noise_error", "constant") if name in known},
    }
    return restore(Plan, nouns)


def with_stream(values: Any) -> Any:
    """Where no version of the noise is named it is the first."""
    if isinstance(values, dict) and isinstance(values.get("setting"), dict):
        return {**values, "setting": {"stream": 1, **values["setting"]}}
    return values


def _take(values: dict[str, Any], noun: type) -> dict[str, Any]:
    return {name: values[name] for name in noun.__dataclass_fields__ if name in values}  # type: ignore[attr-defined]


def _votes(values: dict[str, Any]) -> dict[str, Any]:
    if values["votes"] == "hard":
        return {"kind": "labels"}
    return {"kind": values["votes"], "temperature": values["temperature"]}


def _draws(values: dict[str, Any]) -> dict[str, Any]:
    if values["method"] != ADAPTIVE:
        return {"kind": "fixed", "n": values["n"], "method": values["method"]}
    ends = {"max_n": values["n"], "futility": values["futility"]}
    if values["radii"]:
        return {"kind": "until-radii", "radii": values["radii"], **ends}
    return {"kind": "until-width", "width": values["width"], **ends}


def _constant(values: dict[str, Any]) -> Any:
    return values.get("constant") if values.get("lipschitz") == "given" else values.get("lipschitz")


def _identity(text: str) -> dict[str, str] | str:
    """Name, versions and device of the engine; an imported log does not know them."""
    if not text:
        return AUTO
    engine, within, rest = text.partition(" (")
    versions, _, device = rest.rpartition(") on ")
    if not within:
        engine, _, versions = text.partition(" on ")
        device = "cpu"
    return {"engine": engine, "versions": versions, "device": device, "precision": _precision(engine, versions, device)}


def _precision(engine: str, versions: str, device: str) -> str:
    """What these formats did not say: float32, unless bf16 was asked for; on CUDA with torch's usual tf32 convolutions.

    Of a callable and of an .onnx file, which torch has no part in, nobody can tell.
    """
    if "torch " not in versions:
        return ""
    return "bf16" if "bf16" in engine else "float32 with tf32 convolutions" if device == "cuda" else "float32"
