"""The label counts and lost duels of a whole run at once, for files with many inputs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.plan import Plan, Tally
from smoothcert.plan.tally import SEVERAL, Fought
from smoothcert.sampling.blocks import NO_CANDIDATE, Phase
from smoothcert.sampling.duels import Lost, added_up, leaders
from smoothcert.store.rows import NOTHING, Keys, end_of, fit
from smoothcert.store.schema import is_intact, is_lost, unpack_lost

Ints = NDArray[np.int64]
CHUNK = 20_000
MOST_COUNTS = 50 << 20
"""Inputs × classes: those of ImageNet's validation set, in less than a gigabyte."""

SAMPLE = {Phase.SELECTION.value: 0, Phase.ESTIMATION.value: 1}


def check_size(path: Path, inputs: int, num_classes: int) -> None:
    """Refuses what takes too much memory to be read; a large file may take more."""
    most = max(MOST_COUNTS, path.stat().st_size)
    if inputs * num_classes > most:
        raise InputError(
            f"{path} has {inputs} inputs with {num_classes} counts each, above {most} in all: certify fewer inputs "
            f"into one file, with `skip`, `limit` or `shard`."
        )


def read_counts(found: Iterator[tuple[Any, ...]], plan: Plan, known: Ints, kept: Ints) -> Tally | None:
    """The tally of the inputs that are kept, or None where a row of those that are known is not as it should be.

    Reads what `RunFile.votes` reads, with the same rule but in arrays; what exactly is wrong, that one says. What is
    found are rows of the table of votes, ordered, an input's selection first; shares are not read here.
    """
    m, c = len(kept), plan.classifier.num_classes
    tally, before = Tally.zeros(m, c, plan.classifier.votes.others(m, c)), NOTHING
    selected: list[NDArray[np.uint32]] = []
    while rows := list(islice(found, CHUNK)):
        if not all(is_intact(row) and (row[6] is None or is_lost(row[6])) for row in rows):
            return None
        position, phase, first, last, draws, pairs, beside, took, _ = zip(*rows, strict=True)
        size = np.fromiter(map(len, pairs), dtype=np.int64) // 8
        classes, votes = np.frombuffer(b"".join(pairs), dtype="<u4").reshape(-1, 2).T.astype(np.int64)
        row = np.repeat(np.arange(len(rows)), size)
        lost = [b or b"" for b in beside]
        lost_in = np.repeat(np.arange(len(rows)), [len(b) // 12 for b in lost])
        keys = Keys(
            position=np.array(position),
            sample=np.array([SAMPLE.get(name, -1) for name in phase]),
            first=np.array(first),
            last=np.array(last),
            draws=np.array(draws),
            voted_in=row,
            classes=classes,
            counts=votes,
            lost_in=lost_in,
            lost=Lost(*unpack_lost(b"".join(lost))),
        )
        if not fit(keys, plan, before) or not np.isin(keys.position, known).all():
            return None
        index, wanted = np.searchsorted(kept, keys.position), np.isin(keys.position, kept)
        for sample, counts in enumerate((tally.selections, tally.estimations)):
            of = (wanted & (keys.sample == sample))[row]
            np.add.at(counts, (index[row[of]], classes[of]), votes[of])
        np.add.at(tally.seconds, index[wanted], np.array(took)[wanted])
        if isinstance(tally.others, Fought):
            duels = np.stack([index[lost_in], keys.lost.classes, keys.lost.rivals, keys.lost.counts])
            chosen, proved = ((wanted & (keys.sample == sample))[lost_in] for sample in (0, 1))
            selected.append(duels[:, chosen].astype(np.uint32))
            _add_lost(tally.others, *duels[:, proved])
        before = end_of(keys)
    if isinstance(tally.others, Fought) and selected:
        inputs, *pairs_lost = added_up(*np.concatenate(selected, axis=1).astype(np.int64))
        tally.others.chosen[np.unique(inputs)] = leaders(inputs, Lost(*pairs_lost), tally.selections.sum(axis=1))
    return tally


def _add_lost(fought: Fought, inputs: Ints, classes: Ints, rivals: Ints, counts: Ints) -> None:
    """Adds the lost duels of candidates; as its own rival a class has its draws, which are no loss."""
    new = fought.named[inputs] == NO_CANDIDATE
    fought.named[inputs[new]] = classes[new]
    fought.named[inputs[fought.named[inputs] != classes]] = SEVERAL
    np.add.at(fought.lost, (inputs, rivals), np.where(classes == rivals, 0, counts))
