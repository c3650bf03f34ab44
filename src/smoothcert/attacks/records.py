"""What attacks found, in files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from smoothcert.attacks.audit import Search
from smoothcert.attacks.dataset import DatasetAttack
from smoothcert.errors import InputError
from smoothcert.files import as_text, write_text, write_whole
from smoothcert.text import csv_line


def check_format(path: Path) -> None:
    """Refuses a file that `write_attack` cannot write."""
    if path.suffix not in (".json", ".csv"):
        raise InputError(f"{path} is neither .json nor .csv: choose another `out`.")


def write_attack(path: Path, attack: DatasetAttack, about: Mapping[str, object]) -> None:
    """A .csv with a row for each input, or a .json that holds the settings and the robust accuracy as well, and what
    else is to be said `about` the attack."""
    check_format(path)
    norms = [norm if math.isfinite(norm) else None for norm in attack.norms.tolist()]
    rows = [{"id": i, "label": k, "norm": norm} for i, k, norm in zip(attack.ids, attack.labels, norms, strict=True)]
    if path.suffix == ".csv":
        won = [{f"robust at {e:g}": int(not s) for e, s in zip(attack.eps, row, strict=True)} for row in attack.success]
        write_whole(path, lambda file: _csv(file, [{**a, **b} for a, b in zip(rows, won, strict=True)]))
        return
    accuracy = {f"{e:g}": a for e, a in zip(attack.eps, attack.robust_accuracy.tolist(), strict=True)}
    record = {**about, **attack.settings, "robust_accuracy": accuracy, "inputs": rows}
    write_text(path, json.dumps(record, indent=1))


def write_violations(path: Path, search: Search) -> None:
    """An .npz with a row for each violation: id, certified, found, radius, norm and delta."""

    def column(name: str) -> NDArray[np.generic]:
        return np.array([getattr(violation, name) for violation in search.violations])

    columns = {name: column(name) for name in ("id", "certified", "found", "radius", "norm", "delta")}
    write_whole(path, lambda file: np.savez(file, **columns))  # type: ignore[arg-type]


def _csv(file: BinaryIO, rows: list[dict[str, object]]) -> None:
    with as_text(file) as text:
        text.writelines(map(csv_line, [rows[0], *(row.values() for row in rows)]))
