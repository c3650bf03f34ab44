"""Two runs on the same inputs: which inputs differ, and whether chance could explain it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from smoothcert.report.curves import Curve, firsts
from smoothcert.store.run import Run


@dataclass(frozen=True)
class Contrast:
    """The inputs, by id, on which only the first or only the second run does better, and the sign test's p."""

    first: list[str]
    second: list[str]
    p: float


@dataclass(frozen=True)
class Paired:
    """`certified[i]` compares who certifies the right class at `radii[i]`, `larger` whose radius is larger."""

    names: tuple[str, str]
    inputs: int
    radii: list[float]
    certified: list[Contrast]
    larger: Contrast


def pair(curves: Sequence[Curve], radii: NDArray[np.float64]) -> Paired | None:
    """The comparison of two runs by the first method of each; None unless there are two runs with common inputs."""
    compared = firsts(curves)
    if len(compared) != 2:
        return None
    first, second = compared
    known = _identities(first.run), _identities(second.run)
    ids = [i for i in first.run.ids if i in known[1]]
    if not ids or any(_contradict(known[0][i], known[1][i]) for i in ids):
        return None
    a, b = (_radii(curve, ids) for curve in compared)
    return Paired(
        names=(first.name, second.name),
        inputs=len(ids),
        radii=radii.tolist(),
        certified=[_contrast(ids, (a >= r) & (b < r), (b >= r) & (a < r)) for r in radii],
        larger=_contrast(ids, a.clip(0) > b.clip(0), b.clip(0) > a.clip(0)),
    )


def same_inputs(runs: Sequence[Run]) -> bool:
    """Do the runs certify the same inputs, by id, label and, where both hold it, content?"""
    first, *others = map(_identities, runs)
    return all(
        first.keys() == other.keys() and not any(_contradict(first[i], other[i]) for i in first) for other in others
    )


def sign_test(wins: int, losses: int) -> float:
    """Two-sided exact p: were wins and losses equally likely, how often would they lie this far apart or further?

    On who certifies an input at a radius this is McNemar's exact test.

    >>> sign_test(0, 5)
    0.0625
    """
    return float(binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0


def _contrast(ids: list[str], a: NDArray[np.bool_], b: NDArray[np.bool_]) -> Contrast:
    first, second = ([ids[i] for i in np.flatnonzero(better)] for better in (a, b))
    return Contrast(first, second, sign_test(len(first), len(second)))


def _radii(curve: Curve, ids: list[str]) -> NDArray[np.float64]:
    won = dict(zip(curve.run.ids, curve.won.tolist(), strict=True))
    return np.array([won[i] for i in ids])


def _identities(run: Run) -> dict[str, tuple[int, str | None]]:
    """The label and, where the run holds it, the content hash of each complete input."""
    return {record.id: (record.label, record.digest) for record in run.inputs}


def _contradict(a: tuple[int, str | None], b: tuple[int, str | None]) -> bool:
    return a[0] != b[0] or (None not in (a[1], b[1]) and a[1] != b[1])
