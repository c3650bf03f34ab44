"""The counts of a whole run at once, for files with many inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.sampling.blocks import BLOCK, Phase
from smoothcert.store.schema import Plan, is_intact

Ints = NDArray[np.int64]
CHUNK = 20_000


def read_counts(cursor: Any, plan: Plan, positions: Ints) -> tuple[Ints, NDArray[np.float64]] | None:
    """Counts (2, inputs, classes) of selection and estimation and the seconds of each input, or None where a row is
    not as it should be.

    Reads what `RunFile.votes` reads, with the same checks but in arrays; what exactly is wrong, that one says. The
    cursor yields rows of the table of votes, ordered, an input's selection first; soft votes are not read here.
    """
    counts = np.zeros((2, len(positions), plan.num_classes), dtype=np.int64)
    seconds = np.zeros(len(positions))
    before = np.array([[-1, 0, 0, 0]])  # position, phase, first, last of the row before
    while rows := cursor.fetchmany(CHUNK):
        if not all(map(is_intact, rows)):
            return None
        position, phase, first, last, draws, pairs, soft, took, _ = zip(*rows, strict=True)
        key = np.column_stack([position, np.equal(phase, Phase.ESTIMATION.value), first, last])
        size = np.fromiter(map(len, pairs), dtype=np.int64) // 8
        classes, votes = np.frombuffer(b"".join(pairs), dtype="<u4").reshape(-1, 2).T.astype(np.int64)
        row = np.repeat(np.arange(len(rows)), size)
        if (
            any(soft)
            or not _in_order(np.concatenate([before, key]), plan)
            or not np.isin(phase, [Phase.SELECTION.value, Phase.ESTIMATION.value]).all()
            or not np.isin(key[:, 0], positions).all()
            or (classes >= plan.num_classes).any()
            or (np.bincount(row, votes, len(rows)) != draws).any()
            or (np.minimum(BLOCK * key[:, 3], np.where(key[:, 1], plan.n, plan.n0)) - BLOCK * key[:, 2] != draws).any()
        ):
            return None
        index = np.searchsorted(positions, key[:, 0])
        np.add.at(counts, (key[row, 1], index[row], classes), votes)
        np.add.at(seconds, index, took)
        before = key[-1:]
    return counts, seconds


def _in_order(key: Ints, plan: Plan) -> bool:
    """No block twice; under a rule that looks at the votes, none left out either and the selection first."""
    (position, phase, first, _), (earlier, earlier_phase, _, end) = key[1:].T, key[:-1].T
    same = (position == earlier) & (phase == earlier_phase)
    if (first < np.where(same, end, 0)).any():
        return False
    if plan.futility is None:
        return True
    selected = (position == earlier) & (earlier_phase == 0) & (BLOCK * end >= plan.n0)
    return bool((first == np.where(same, end, 0)).all() and (same | (phase == 0) | selected).all())
