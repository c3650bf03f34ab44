"""Drawing stored votes again: a model that changed, is random, or whose rows see each other, gives itself away."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np

from smoothcert.errors import InputError, RunError
from smoothcert.sampling.blocks import BLOCK, Block, Votes, blocks_of, join
from smoothcert.sampling.machine import Draws
from smoothcert.store.file import RunFile

REDRAWN, MOST_REDRAWN, MOST_DIVIDED = 0.02, 100_000, 10
"""What is drawn again: this share of the rows, about so many draws at most, and so many of the most divided rows."""

UNCHECKED = "its model is still being checked, so let certify end, or run it again."
"""Stands in the file while that is being found out."""


def telling(votes: Votes) -> tuple[int, float]:
    """Sorts rows of votes by how soon a model that changed would show in them: short and divided ones first."""
    return votes.last - votes.first, _agreement(votes)


def recompute(file: RunFile, executor: Draws, stored: Votes) -> None:
    """Draws a stored row again, and refuses to go on where it comes out otherwise.

    Weights do not tell everything: a callable has none, and the code of a module may change around them.
    """
    if _changed(executor, [stored]):
        raise InputError(
            f"{file.path} has other votes for its input number {stored.position} than this model casts now: the "
            f"model, its code or the machine's arithmetic has changed, so start a new run with another `out`."
        )


def require_determinism(file: RunFile, executor: Draws, seed: int) -> None:
    """Draws a share of the stored rows again, and the most divided ones, among others; one that differs voids the run.

    Until this ends well the file certifies nothing, so that whatever stops it leaves no doubtful certificate.
    """
    file.reject(UNCHECKED)
    divided = heapq.nsmallest(MOST_DIVIDED, file.votes(), key=_agreement)
    share = min(REDRAWN, MOST_REDRAWN / sum(v.draws for v in file.votes()))
    generator = np.random.default_rng(abs(seed))
    others = (v for v in file.votes() if generator.random() < share)
    rows = {(v.position, v.phase, v.first): v for v in (*divided, *others)}
    changed = _changed(executor, list(rows.values()))
    if changed:
        file.reject(
            f"its model is not one function of one input (input number {changed[0].position}, drawn again, got other "
            f"votes), so switch off what is random in it (dropout, racing kernels) or looks at other rows, and start a "
            f"new run with another `out`."
        )
        raise RunError(f"{file.path} certifies nothing: {file.rejected}")
    file.reject(None)


def _agreement(votes: Votes) -> float:
    """The share of the votes that the first class has."""
    return float(votes.counts.max() / votes.draws)


def _changed(executor: Draws, rows: Sequence[Votes]) -> list[Votes]:
    """Those of the stored rows that come out otherwise when they are drawn again.

    Every other row is drawn first, so that none comes right after the one before it and their votes come apart.
    """
    rows = sorted(rows, key=lambda v: (v.position, v.phase, v.first))
    rows = [*rows[1::2], *rows[::2]]
    row_of = {(v.position, v.phase, b): i for i, v in enumerate(rows) for b in range(v.first, v.last)}
    again: list[list[Votes]] = [[] for _ in rows]
    for votes in executor.run(b for v in rows for b in _blocks(v)):
        again[row_of[votes.position, votes.phase, votes.first]].append(votes)
    return [v for v, parts in zip(rows, again, strict=True) if not join(parts).says_the_same_as(v)]


def _blocks(votes: Votes) -> Iterator[Block]:
    """The blocks behind a stored row."""
    draws = votes.first * BLOCK + votes.draws
    return blocks_of(votes.position, votes.phase, draws, start=votes.first, candidate=votes.candidate)
