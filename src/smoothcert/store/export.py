"""Certificates out of a run file, for other programs."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from smoothcert.errors import InputError
from smoothcert.records import record
from smoothcert.store.run import Run
from smoothcert.text import csv_cell

ESTIMATED_RADIUS = "estimated_radius"
COHEN_COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")


def export_run(
    run: Run,
    path: Path,
    kind: str,
    method: str | None = None,
    alpha: float | None = None,
    estimated: bool = False,
) -> int:
    """Writes the certificates as tsv, csv, parquet or json, whole or not at all; returns how many.

    The radii are what is proved; where `estimated` are asked for, they stand in a column of that name.
    """
    if kind not in WRITERS:
        raise InputError(f"unknown format {kind!r}: choose one of {', '.join(WRITERS)}.")
    rows = _rows(run, method, alpha, estimated)
    write_whole(path, lambda partial: WRITERS[kind](rows, run, partial))
    return len(rows)


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file completely or leaves what was there; a run is never overwritten."""
    if path.is_file() and path.open("rb").read(15) == b"SQLite format 3":
        raise InputError(f"{path} is a run file: choose another `out`.")
    partial = path.with_name(path.name + ".part")
    try:
        write(partial)
        os.replace(partial, path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise InputError(f"{path} cannot be written ({error.strerror}): choose another path.") from None


def beside(run: Path, suffix: str) -> Path:
    """The name of a file that belongs to a run: its own, with another ending."""
    return run.with_name(run.name.removesuffix(".smoothcert") + suffix)


def _rows(run: Run, method: str | None, alpha: float | None, estimated: bool) -> list[dict[str, Any]]:
    tally = run.tally
    return [
        {
            "id": id,
            "label": int(label),
            **{ESTIMATED_RADIUS if estimated and k == "radius" else k: v for k, v in certificate.as_row().items()},
            "correct": bool(certificate.prediction == label),
            "seconds": s,
        }
        for id, label, certificate, s in zip(
            run.ids,
            run.labels,
            run.certificates(method, alpha, estimated=estimated),
            tally.seconds.tolist(),
            strict=True,
        )
    ]


def _tsv(rows: list[dict[str, Any]], run: Run, path: Path) -> None:
    """The columns and formats of the logs of Cohen et al., which scripts of that family read."""
    with path.open("w") as file:
        radius = ESTIMATED_RADIUS if rows and ESTIMATED_RADIUS in rows[0] else "radius"
        print(*(radius if column == "radius" else column for column in COHEN_COLUMNS), sep="\t", file=file)
        for r in rows:
            time = timedelta(seconds=r["seconds"])
            print(
                r["id"],
                r["label"],
                r["prediction"],
                f"{r[radius]:.3}",
                int(r["correct"]),
                time,
                sep="\t",
                file=file,
            )


def _csv(rows: list[dict[str, Any]], run: Run, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["id"])
        writer.writeheader()
        writer.writerows({**r, "id": csv_cell(r["id"])} for r in rows)


def _parquet(rows: list[dict[str, Any]], run: Run, path: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError("parquet files need pyarrow: pip install 'smoothcert[parquet]'.") from None
    pq.write_table(pa.Table.from_pylist(_with_counts(rows, run)), path)


def _json(rows: list[dict[str, Any]], run: Run, path: Path) -> None:
    plan = {**record(run.plan), "setting": {**record(run.plan.setting), "engine": str(run.plan.setting.engine)}}
    content = {"plan": plan, "info": record(run.info), "certificates": _with_counts(rows, run)}
    path.write_text(json.dumps(content, indent=1))


def _with_counts(rows: list[dict[str, Any]], run: Run) -> list[dict[str, Any]]:
    if run.info.radii_only:
        return rows
    votes = zip(run.tally.selections.tolist(), run.tally.estimations.tolist(), strict=True)
    return [{**r, "selection": s, "estimation": e} for r, (s, e) in zip(rows, votes, strict=True)]


WRITERS: dict[str, Callable[[list[dict[str, Any]], Run, Path], None]] = {
    "tsv": _tsv,
    "csv": _csv,
    "parquet": _parquet,
    "json": _json,
}
