"""Logs of other programs into a run file: radii of Cohen et al., vote counts of the paper's own scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.checks import check_counts
from smoothcert.errors import InputError
from smoothcert.files import read_plain
from smoothcert.plan import Classifier, FixedN, Labels, Plan, Question, Selection, Setting
from smoothcert.sampling.blocks import BLOCK, Claim, Phase, Votes
from smoothcert.store.counts import MOST_COUNTS
from smoothcert.store.export import COHEN_COLUMNS
from smoothcert.store.new_run import new_run
from smoothcert.store.rows import largest_radius
from smoothcert.store.run import Run
from smoothcert.store.schema import MOST_SECONDS, Info, InputRecord
from smoothcert.text import printable

VOTE_COLUMNS = ("idx", "label", "counts")
LARGEST_LOG = 1 << 30  # bytes
LARGEST_CONFIG = 1 << 20  # bytes
QUOTED = re.compile('"(?:[^"]|"")*"')
DURATION = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d(?:\.\d+)?)", re.ASCII)


def import_logs(
    logs: Sequence[Path],
    out: Path,
    *,
    sigma: float | None = None,
    alpha: float | None = None,
    n0: int | None = None,
    n: int | None = None,
    num_classes: int | None = None,
) -> Run:
    """One log with radii, or two with votes (selection and estimation, in either order) beside `certify_args.json`."""
    tables = [_read(path) for path in logs]
    headers = {header for header, _ in tables}
    if headers == {COHEN_COLUMNS} and len(logs) == 1:
        return _import_radii(logs[0], tables[0][1], out, sigma, alpha, n0, n, num_classes)
    if headers == {VOTE_COLUMNS} and len(logs) == 2:
        return _import_votes(logs, [rows for _, rows in tables], out, sigma, alpha)
    raise InputError(
        "give one log with the columns idx, label, predict, radius, correct, time, or two with idx, label, counts."
    )


def _read(path: Path) -> tuple[tuple[str, ...], list[list[str]]]:
    """The header and the rows of a tab-separated file, each row as long as the header."""
    try:
        lines = read_plain(path.resolve(), LARGEST_LOG).decode().splitlines()
    except (OSError, RuntimeError, UnicodeDecodeError) as error:  # RuntimeError: a link that leads to itself
        raise InputError(f"{path} cannot be read as text ({error}): give a tab-separated log.") from None
    if not lines:
        raise InputError(f"{path} is empty: give a tab-separated log.")
    header = tuple(lines[0].split("\t"))
    rows = [_fields(line) for line in lines[1:] if line.strip()]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise InputError(f"line {number} of {path} has {len(row)} columns, not {len(header)}: the log is cut off.")
        if printable(row[0]) != row[0]:
            raise InputError(f"line {number} of {path} has the index {row[0][:20]!r}: use one that can be shown.")
    if len({row[0] for row in rows}) < len(rows):
        raise InputError(f"{path} has the same index twice: give the log of one run.")
    return header, rows


def _fields(line: str) -> list[str]:
    """What stands between the tabs, without the quotes that `tsv_line` puts around it."""
    fields = line.split("\t")
    if '"' not in line:
        return fields
    return [field[1:-1].replace('""', '"') if QUOTED.fullmatch(field) else field for field in fields]


def _import_radii(
    log: Path,
    rows: list[list[str]],
    out: Path,
    sigma: float | None,
    alpha: float | None,
    n0: int | None,
    n: int | None,
    num_classes: int | None,
) -> Run:
    named = re.search(r"sigma_(\d*\.?\d+)", log.name, re.ASCII)
    if sigma is None and named is None:
        raise InputError(f"{log} does not say its sigma: pass `sigma`.")
    entries = [
        (idx, _class(label, log, i), _class(k, log, i, ABSTAIN), _radius(radius, log, i), _seconds(time, log, i))
        for i, (idx, label, k, radius, _, time) in enumerate(rows, start=2)
    ]
    least = 1 + max([1, *(max(label, k) for _, label, k, *_ in entries)])
    if num_classes is not None and num_classes < least:
        raise InputError(f"{log} names class {least - 1}: pass `num_classes` of at least {least}.")
    plan = _plan(
        method="mono",
        alpha=0.001 if alpha is None else alpha,
        n0=n0 or 100,
        n=n or 100_000,
        sigma=sigma if named is None or sigma is not None else float(named[1]),
        num_classes=num_classes or least,
        total=len(entries),
    )
    for number, (*_, k, radius, _) in enumerate(entries, start=2):
        if k == ABSTAIN and radius > 0:
            raise InputError(f"line {number} of {log} has a radius and no class: repair the log.")
        if radius > largest_radius(plan):
            raise InputError(
                f"line {number} of {log} has radius {radius:g}, which no number of draws proves at sigma = "
                f"{plan.classifier.sigma:g}: check `sigma`."
            )
    with new_run(out, plan, _info(log, radii_only=True)) as file:
        for position, (idx, label, k, radius, seconds) in enumerate(entries):
            file.add_input(InputRecord(position, idx, label), None)
            file.add_claim(Claim(position, k, radius, plan.question.draws.most, seconds))
    return Run(out)


def _import_votes(
    logs: Sequence[Path], tables: list[list[list[str]]], out: Path, sigma: float | None, alpha: float | None
) -> Run:
    config = _config(logs[0].with_name("certify_args.json"))
    first, second = (list(_votes(rows, log)) for rows, log in zip(tables, logs, strict=True))
    if [row[:2] for row in first] != [row[:2] for row in second] or not first:
        raise InputError(f"{logs[0]} and {logs[1]} list different inputs: give the two logs of one run.")
    totals = [{sum(counts) for _, _, counts in votes} for votes in (first, second)]
    if any(len(total) != 1 for total in totals) or totals[0] == totals[1]:
        raise InputError(
            f"{logs[0]} and {logs[1]} must each have one number of draws for all inputs, and different ones."
        )
    selection, estimation = (first, second) if max(totals[0]) < max(totals[1]) else (second, first)
    phases = {Phase.SELECTION: selection, Phase.ESTIMATION: estimation}
    counted = {phase: check_counts([counts for *_, counts in votes], phase.value) for phase, votes in phases.items()}
    if max(label for _, label, _ in selection) >= len(selection[0][2]):
        raise InputError(f"{logs[0]} has a label beyond its {len(selection[0][2])} classes: repair the log.")
    if len(selection[0][2]) != len(estimation[0][2]):
        raise InputError(f"{logs[0]} and {logs[1]} count different numbers of classes: give the two logs of one run.")
    plan = _plan(
        method=Labels.default_method,
        alpha=config.get("alpha", 0.001) if alpha is None else alpha,
        n0=sum(selection[0][2]),
        n=sum(estimation[0][2]),
        sigma=config.get("sigma") if sigma is None else sigma,
        num_classes=len(selection[0][2]),
        total=len(selection),
    )
    with new_run(out, plan, _info(logs[0], radii_only=False)) as file:
        for position, (idx, label, _) in enumerate(selection):
            file.add_input(InputRecord(position, idx, label), None)
        file.write_votes(
            _row(position, phase, counts)
            for position in range(len(selection))
            for phase, counts in ((phase, tallies[position]) for phase, tallies in counted.items())
        )
    return Run(out)


def _row(position: int, phase: Phase, counts: NDArray[np.int64]) -> Votes:
    classes, draws = counts.nonzero()[0], int(counts.sum())
    return Votes(position, phase, 0, -(-draws // BLOCK), draws, classes, counts[classes], 0.0)


def _config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(read_plain(path, LARGEST_CONFIG))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        raise InputError(f"{path} is not a plain file of readable JSON: repair or remove it.") from None
    if not isinstance(config, dict):
        raise InputError(f"{path} must hold a JSON object: repair or remove it.")
    for name in ("sigma", "alpha"):
        if not isinstance(config.get(name), int | float | None):
            raise InputError(f"{path} says of {name} what is no number: repair or remove it.")
    return config


def _votes(rows: list[list[str]], log: Path) -> Iterator[tuple[str, int, list[int]]]:
    for number, (idx, label, text) in enumerate(rows, start=2):
        if not re.fullmatch(r"\[\d{1,9}(, *\d{1,9})*\]", text.strip(), re.ASCII):
            raise InputError(f"line {number} of {log} has no list of counts such as [3, 97]: the log is cut off.")
        yield idx, _class(label, log, number), [int(k) for k in re.findall(r"\d+", text)]


def _plan(*, method: str, alpha: float, n0: int, n: int, sigma: float | None, num_classes: int, total: int) -> Plan:
    """A plan with what a log tells; what it does not tell is left open."""
    if sigma is None:
        raise InputError("the logs do not say their sigma: pass `sigma`.")
    if total * num_classes > MOST_COUNTS:
        raise InputError(
            f"the logs say {total} inputs and {num_classes} classes, too many to be true: check the labels."
        )
    return Plan(
        Classifier(sigma=sigma, num_classes=num_classes, votes=Labels()),
        Question(n0=n0, draws=FixedN(n, method), alpha=alpha),
        Setting(),
        Selection(total=total),
    )


def _info(log: Path, radii_only: bool) -> Info:
    return Info(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=f"import {log.name}",
        model="",
        data=log.name,
        classes=None,
        radii_only=radii_only,
    )


def _class(text: str, log: Path, number: int, least: int = 0) -> int:
    if not re.fullmatch(r"-?\d{1,9}", text.strip(), re.ASCII) or int(text) < least:
        raise InputError(f"line {number} of {log} has {text[:20]!r} where a class belongs: repair the log.")
    return int(text)


def _radius(text: str, log: Path, number: int) -> float:
    try:
        radius = float(text) if text.isascii() and "_" not in text else -1.0
    except ValueError:
        radius = -1.0
    if not 0 <= radius < float("inf"):
        raise InputError(f"line {number} of {log} has {text[:20]!r} where a radius belongs: repair the log.")
    return radius


def _seconds(text: str, log: Path, number: int) -> float:
    match = DURATION.fullmatch(text.strip())
    if match is None:
        return 0.0
    days, hours, minutes, seconds = match.groups(default="0")
    if max(len(days), len(hours)) > 9:
        raise InputError(f"line {number} of {log} has {text[:20]!r} where a duration belongs: repair the log.")
    return min(int(days) * 86400 + int(hours) * 3600 + int(minutes) * 60 + float(seconds), MOST_SECONDS)
