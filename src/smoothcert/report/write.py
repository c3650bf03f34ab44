"""A report into a file: the page, a figure or a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.report.figure import save_figure
from smoothcert.report.page import build_page
from smoothcert.report.paired import Paired, pair
from smoothcert.report.series import gather, table_radii
from smoothcert.report.tables import TABLES
from smoothcert.store.export import beside, write_whole
from smoothcert.store.run import Run

FORMATS = {
    "html": ".html",
    "pdf": ".pdf",
    "svg": ".svg",
    "png": ".png",
    "markdown": ".md",
    "latex": ".tex",
    "csv": ".csv",
}


def write_report(
    runs: Sequence[Run],
    out: Path | None = None,
    kind: str | None = None,
    *,
    methods: Sequence[str] | None = None,
    alpha: float | None = None,
    rho: float = 0.001,
    radii: Sequence[str | float] | None = None,
    names: Sequence[str] = (),
    estimated: bool = False,
) -> tuple[Path, Paired | None]:
    """Writes the report, whole or not at all; returns its path and, for two runs of the same inputs, the comparison."""
    if not 0 < rho < 1:
        raise InputError(f"rho must lie strictly between 0 and 1, got {rho!r}: 0.001 is the usual choice.")
    kind = kind or _kind_of(out)
    if kind not in FORMATS:
        raise InputError(f"unknown format {kind!r}: choose one of {', '.join(FORMATS)}.")
    path = out or beside(runs[0].path, FORMATS[kind])
    series = gather(runs, methods, alpha, names, estimated)
    at = table_radii(series) if radii is None else _radii(radii)
    paired = pair(series, at)
    if kind == "html":
        text = build_page(series, at, rho, paired)
        write_whole(path, lambda partial: partial.write_text(text, encoding="utf-8"))
    elif kind in TABLES:
        text = TABLES[kind](series, at, rho, paired)
        write_whole(path, lambda partial: partial.write_text(text, encoding="utf-8"))
    else:
        write_whole(path, lambda partial: save_figure(series, partial, kind))
    return path, paired


def _kind_of(out: Path | None) -> str:
    """The format that the file's ending names."""
    if out is None:
        return "html"
    endings = {ending: kind for kind, ending in FORMATS.items()}
    if out.suffix not in endings:
        raise InputError(f"{out} has no known ending: use one of {', '.join(endings)}, or pass --format.")
    return endings[out.suffix]


def _radii(radii: Sequence[str | float]) -> NDArray[np.float64]:
    try:
        values = np.array([float(r) for r in radii])
    except ValueError:
        values = np.array([-1.0])
    if not (np.isfinite(values) & (values > 0)).all():
        raise InputError("the radii of a table are positive numbers, such as 0.25,0.5,1.")
    return values
