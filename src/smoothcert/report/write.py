"""A report into a file: the page, a figure or a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from smoothcert.errors import InputError
from smoothcert.files import write_text, write_whole
from smoothcert.options import keywords, make
from smoothcert.report.contents import Contents, Wanted
from smoothcert.report.figure import save_figure
from smoothcert.report.page import build_page
from smoothcert.report.paired import Paired
from smoothcert.report.tables import TABLES
from smoothcert.store.export import beside
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
TEXTS: Mapping[str, Callable[[Contents], str]] = {"html": build_page, **TABLES}


@keywords(Wanted)
def write_report(
    runs: Sequence[Run], out: Path | None = None, kind: str | None = None, **given: Any
) -> tuple[Path, Paired | None]:
    """Writes the report, whole or not at all; returns its path and, for two runs of the same inputs, the comparison."""
    wanted, kind = make(Wanted, given), kind or _kind_of(out)
    if kind not in FORMATS:
        raise InputError(f"unknown format {kind!r}: choose one of {', '.join(FORMATS)}.")
    path, contents = out or beside(runs[0].path, FORMATS[kind]), wanted.of(runs)
    if kind in TEXTS:
        write_text(path, TEXTS[kind](contents))
    else:
        write_whole(path, lambda file: save_figure(contents, file, kind))
    return path, contents.paired


def _kind_of(out: Path | None) -> str:
    """The format that the file's ending names."""
    if out is None:
        return "html"
    endings = {ending: kind for kind, ending in FORMATS.items()}
    if out.suffix not in endings:
        raise InputError(f"{out} has no known ending: use one of {', '.join(endings)}, or pass `kind`.")
    return endings[out.suffix]
