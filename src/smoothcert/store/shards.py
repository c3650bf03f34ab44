"""Shards of a run, certified on machines that know nothing of each other, joined to the run they are parts of.

Shard i of k holds the inputs i − 1, i − 1 + k, i − 1 + 2k, … of the run, and numbers them 0, 1, 2, … itself. The noise
of an input depends on the seed and on its row in the data set, so its votes are those of the run that was never split.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from smoothcert.errors import InputError
from smoothcert.store.copies import new_run
from smoothcert.store.file import RunFile
from smoothcert.store.run import Run
from smoothcert.store.schema import Plan


def merge_runs(shards: Sequence[str | Path], out: str | Path) -> Run:
    """Joins all shards of one run into the new file `out`; what is not exactly that is refused."""
    runs = _in_order([Run(path) for path in shards])
    k = len(runs)
    total = sum(run.plan.total for run in runs)
    if [run.plan.total for run in runs] != [len(range(i, total, k)) for i in range(k)]:
        raise InputError("the shards do not divide one set of inputs evenly: certify them from the same data.")
    plan = dataclasses.replace(runs[0].plan, shard=None, total=total)
    info = dataclasses.replace(runs[0].info, command=f"smoothcert merge, of {k} files by: {runs[0].info.command}")
    with new_run(Path(out), plan, info) as merged:
        for offset, run in enumerate(runs):
            with RunFile.open_to_read(run.path) as file:
                for position, id, label, digest in file.inputs():
                    merged.add_input(offset + k * position, id, label, digest, file.thumbnail(position))
                for claim in file.claims():
                    merged.add_claim(dataclasses.replace(claim, position=offset + k * claim.position))
                merged.add_constants({offset + k * p: value for p, value in file.constants().items()})
                merged.write_votes(dataclasses.replace(v, position=offset + k * v.position) for v in file.votes())
    return Run(out)


def _in_order(runs: list[Run]) -> list[Run]:
    """The runs by their number, or why they are not the shards of one run."""
    by_number: dict[int, Run] = {}
    for run in runs:
        if run.plan.shard is None:
            raise InputError(f"{run.path} is no shard but a whole run: give files that certify --shard has written.")
        _require_one_run(runs[0], run)
        if run.rejected:
            raise InputError(f"{run.path} certifies nothing: {run.rejected}")
        if not run.finished:
            raise InputError(f"{run.path} has {len(run)} of {run.plan.total} inputs: let certify finish it first.")
        number, k = run.plan.shard
        if number in by_number:
            raise InputError(f"{by_number[number].path} and {run.path} are both shard {number}/{k}: give each once.")
        by_number[number] = run
    missing = [f"{i}/{k}" for i in range(1, k + 1) if i not in by_number]
    if missing:
        raise InputError(f"of {k} shards there is no {', no '.join(missing)}: certify and give all of them.")
    return [by_number[i] for i in range(1, k + 1)]


def _require_one_run(first: Run, other: Run) -> None:
    """Everything that was declared must agree, but the number of the shard and how many inputs it has."""
    for field in dataclasses.fields(Plan):
        ours, theirs = getattr(first.plan, field.name), getattr(other.plan, field.name)
        if field.name == "shard":
            ours, theirs = ours and ours[1], theirs and theirs[1]
        if field.name != "total" and ours != theirs:
            raise InputError(
                f"{first.path} and {other.path} are shards of different runs ({_of(field.name)} {ours} and {theirs}): "
                f"give those of one."
            )


def _of(field: str) -> str:
    return "split into" if field == "shard" else f"{field} ="
