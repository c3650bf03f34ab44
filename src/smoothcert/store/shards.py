"""Shards of a run, certified on machines that know nothing of each other, joined to the run they are parts of.

Shard i of k holds the inputs i − 1, i − 1 + k, i − 1 + 2k, … of the run, and numbers them 0, 1, 2, … itself. The noise
of an input depends on the seed and on its row in the data set, so its votes are those of the run that was never split.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import islice, zip_longest
from pathlib import Path

from smoothcert.errors import InputError
from smoothcert.plan import differences
from smoothcert.store.new_run import new_run
from smoothcert.store.run import Run
from smoothcert.store.schema import InputsHash

MOST_NAMED = 100
"""Missing shards that a message names: a forged file may be one of any number."""


def merge_runs(shards: Sequence[str | Path], out: str | Path) -> Run:
    """Joins all shards of one run into the new file `out`; what is not exactly that is refused."""
    runs = _in_order([Run(path) for path in shards])
    k = len(runs)
    parts = [run.plan.selection.total for run in runs]
    total = sum(parts)
    if parts != [len(range(i, total, k)) for i in range(k)]:
        raise InputError("the shards do not divide one set of inputs evenly: certify them from the same data.")
    selection = dataclasses.replace(runs[0].plan.selection, shard=None, total=total, inputs=_fingerprint(runs))
    plan = dataclasses.replace(runs[0].plan, selection=selection)
    info = dataclasses.replace(runs[0].info, command=f"smoothcert merge, of {k} files by: {runs[0].info.command}")
    with new_run(Path(out), plan, info) as merged:
        for offset, run in enumerate(runs):
            with run.file() as file:
                for record in file.inputs():
                    moved = dataclasses.replace(record, position=offset + k * record.position)
                    merged.add_input(moved, file.thumbnail(record.position))
                for claim in file.claims():
                    merged.add_claim(dataclasses.replace(claim, position=offset + k * claim.position))
                merged.add_constants({offset + k * p: value for p, value in file.constants().items()})
                merged.add_clean({offset + k * p: label for p, label in file.clean().items()})
                merged.write_votes(dataclasses.replace(v, position=offset + k * v.position) for v in file.votes())
    return Run(out)


def _fingerprint(runs: list[Run]) -> str:
    """That of the inputs of all shards in the order of the run; files of older formats have none."""
    if not all(run.plan.selection.inputs for run in runs):
        return ""
    hashed = InputsHash()
    for records in zip_longest(*(run.inputs for run in runs)):
        for record in records:
            if record is not None:
                hashed.add(record)
    return hashed.fingerprint


def _in_order(runs: list[Run]) -> list[Run]:
    """The runs by their number, or why they are not the shards of one run."""
    by_number: dict[int, Run] = {}
    for run in runs:
        if run.plan.selection.shard is None:
            raise InputError(f"{run.path} is no shard but a whole run: give files that were certified with `shard`.")
        _require_one_run(runs[0], run)
        if run.rejected:
            raise InputError(f"{run.path} certifies nothing: {run.rejected}")
        if not run.finished:
            raise InputError(
                f"{run.path} has {len(run)} of {run.plan.selection.total} inputs: let certify finish it first."
            )
        number, k = run.plan.selection.shard
        if number in by_number:
            raise InputError(f"{by_number[number].path} and {run.path} are both shard {number}/{k}: give each once.")
        by_number[number] = run
    missing = [f"{i}/{k}" for i in islice((i for i in range(1, k + 1) if i not in by_number), MOST_NAMED)]
    if missing:
        raise InputError(f"of {k} shards there is no {', no '.join(missing)}: certify and give all of them.")
    return [by_number[i] for i in range(1, k + 1)]


def _require_one_run(first: Run, other: Run) -> None:
    """Everything that was declared must agree, but the number of the shard, its inputs and how many they are."""
    for name, ours, theirs in differences(first.plan, other.plan):
        if name == "shard":
            ours, theirs = ours and ours[1], theirs and theirs[1]
        if name not in ("total", "inputs") and ours != theirs:
            raise InputError(
                f"{first.path} and {other.path} are shards of different runs ({_of(name)} {ours} and {theirs}): "
                f"give those of one."
            )


def _of(field: str) -> str:
    return "split into" if field == "shard" else f"{field} ="
