"""Published figures to lay over a report, kept as data with their source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

from smoothcert.errors import InputError

FILE = "baselines.json"


@dataclass(frozen=True)
class Baseline:
    """Certified accuracy at some radii, for each σ, as a paper's table has it."""

    name: str
    source: str
    radii: list[float]
    certified: dict[str, list[float]]

    def rows(self) -> Iterator[tuple[str, dict[float, float]]]:
        """Each row of the table: its name, and its accuracy by radius."""
        for sigma, shares in self.certified.items():
            yield f"{self.name}, σ = {float(sigma):g}", dict(zip(self.radii, shares, strict=True))


def baseline(name: str) -> Baseline:
    """The published table of that name.

    >>> baseline("cohen-cifar10").certified["0.25"][0]
    0.6
    """
    known = json.loads(files("smoothcert.report").joinpath(FILE).read_text(encoding="utf-8"))
    if name not in known:
        raise InputError(f"unknown baseline {name!r}: choose one of {', '.join(known)}.")
    return Baseline(**known[name])
