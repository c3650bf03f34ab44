"""Certificates out of a run file, for other programs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from smoothcert.certificate import AT_ONCE
from smoothcert.errors import InputError
from smoothcert.files import as_text, write_whole
from smoothcert.records import record
from smoothcert.store.run import Run
from smoothcert.text import csv_line, radius_text, tsv_line

logger = logging.getLogger(__name__)
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
    write_whole(path, lambda file: WRITERS[kind](rows, run, file))
    if not run.finished:
        total = run.plan.selection.total
        logger.warning("the run is not finished: %s has %d of %d inputs", path, len(rows), total)
    return len(rows)


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
            "correct": bool(certificate.prediction == label) and not certificate.abstained,
            "clean": clean,
            "seconds": s,
        }
        for id, label, certificate, clean, s in zip(
            run.ids,
            run.labels,
            run.certificates(method, alpha, estimated=estimated),
            (k if k >= 0 else None for k in run.clean.tolist()),
            tally.seconds.tolist(),
            strict=True,
        )
    ]


def _tsv(rows: list[dict[str, Any]], run: Run, file: BinaryIO) -> None:
    """The columns and formats of the logs of Cohen et al., which scripts of that family read."""
    radius = ESTIMATED_RADIUS if rows and ESTIMATED_RADIUS in rows[0] else "radius"
    with as_text(file) as text:
        print(*(radius if column == "radius" else column for column in COHEN_COLUMNS), sep="\t", file=text)
        for r in rows:
            time = timedelta(seconds=r["seconds"])
            facts = (r["id"], r["label"], r["prediction"], radius_text(r[radius]), int(r["correct"]), time)
            print(tsv_line(facts), file=text)


def _csv(rows: list[dict[str, Any]], run: Run, file: BinaryIO) -> None:
    with as_text(file) as text:
        text.writelines(map(csv_line, [rows[0] if rows else ["id"], *(r.values() for r in rows)]))


def _parquet(rows: list[dict[str, Any]], run: Run, file: BinaryIO) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError("parquet files need pyarrow: pip install 'smoothcert[parquet]'.") from None
    table, classes = pa.Table.from_pylist(rows), run.plan.classifier.num_classes
    for name, counts in _samples(run).items():
        ends = pa.array(classes * np.arange(len(rows) + 1), pa.int32())
        table = table.append_column(name, pa.ListArray.from_arrays(ends, counts.ravel()))
    pq.write_table(table, file, row_group_size=max(1, AT_ONCE // classes))


def _json(rows: list[dict[str, Any]], run: Run, file: BinaryIO) -> None:
    """One certificate a line, written as it comes: counts of many classes take much more room as text."""
    plan = {**record(run.plan), "setting": {**record(run.plan.setting), "engine": str(run.plan.setting.engine)}}
    known = {"finished": run.finished, "accuracies": record(run.accuracies), "plan": plan, "info": record(run.info)}
    about = json.dumps(known, indent=1).removesuffix("\n}")
    with as_text(file) as text:
        text.write(f'{about},\n "certificates": [')
        for i, row in enumerate(rows):
            counts = {name: counts[i].tolist() for name, counts in _samples(run).items()}
            text.write(f"{',' if i else ''}\n  {json.dumps({**row, **counts})}")
        text.write("\n ]\n}\n")


def _samples(run: Run) -> dict[str, NDArray[Any]]:
    """The counts by the names of their columns, where there are some."""
    return {} if run.voteless else {"selection": run.tally.selections, "estimation": run.tally.estimations}


WRITERS: dict[str, Callable[[list[dict[str, Any]], Run, BinaryIO], None]] = {
    "tsv": _tsv,
    "csv": _csv,
    "parquet": _parquet,
    "json": _json,
}
