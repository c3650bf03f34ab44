"""The width of margin votes, chosen before the plan is written, on draws of selection noise, which proves nothing."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.certification.planning import job_of
from smoothcert.errors import InputError
from smoothcert.plan import Margins, Plan, Slopes
from smoothcert.sampling.blocks import Input, Phase, blocks_of
from smoothcert.sampling.machine import Machine
from smoothcert.text import counted

logger = logging.getLogger(__name__)
INPUTS = 50
"""So many inputs are drawn, spread over all that are to be certified."""

TIMES = 2.0 ** np.arange(-6, 3.5, 0.5)
"""Widths that are compared, times the usual lead: from hardly other than duels to hardly other than the mean margin."""


@dataclass(frozen=True)
class Seen:
    """The scores (draws, c) of some draws, as they are."""

    candidate: int
    scores: NDArray[np.float64]

    @classmethod
    def join(cls, parts: Sequence[Seen]) -> Seen:
        return cls(parts[0].candidate, np.concatenate([part.scores for part in parts]))

    def equals(self, other: Seen) -> bool:
        return np.array_equal(self.scores, other.scores)

    def leader(self, draws: int) -> int:
        """The class with the largest mean score."""
        return int(self.scores.mean(axis=0).argmax())


@dataclass(frozen=True)
class Looking:
    """Keeps the scores of every draw."""

    name: str = Margins.name
    of_scores: bool = True

    def ballots(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.double()

    def count(self, ballots: NDArray[Any], candidate: int) -> Seen:
        return Seen(candidate, ballots)


def with_width(plan: Plan, machine: Machine, inputs: Callable[[int], Input]) -> Plan:
    """The plan with the width whose average radius would be largest if all draws were like those seen here.

    The noise is that of the selection, n0 draws of some inputs. The estimation draws are independent of it, so that
    choosing costs nothing.
    """
    if plan.selection.shard is not None:
        raise InputError("shards are parts of one run, which has one width of margin votes: give it as a number.")
    seen = [each.scores for each in _looked(plan, machine, inputs)]
    average = promised(seen, plan.question.draws.most, plan.level, plan.classifier.sigma, plan.slopes(1))
    best, least, most = max(average, key=average.__getitem__), min(average), max(average)
    logger.info(
        "width of the margin votes: %g, at which %s promise an average radius of %.3f (%.3f at %g, %.3f at %g)",
        *(best, counted(len(seen), "input"), average[best]),
        *(average[least], least, average[most], most),
    )
    return replace(plan, classifier=replace(plan.classifier, votes=Margins(best)))


def promised(
    seen: Sequence[NDArray[np.float64]], n: int, level: float, sigma: float, slopes: Slopes | None
) -> dict[float, float]:
    """The average radius by width if n draws of each input were like those seen, whose scores (draws, c) these are."""
    widths = [float(f"{width:.3g}") for width in _lead(seen) * TIMES]
    return {w: float(Margins(w).promised(seen, n, level, sigma, slopes).mean()) for w in widths}


def _looked(plan: Plan, machine: Machine, inputs: Callable[[int], Input]) -> list[Seen]:
    """What is seen of each input."""
    some = np.unique(np.linspace(0, plan.selection.total - 1, INPUTS).round().astype(int)).tolist()
    job = replace(job_of(plan.classifier, plan.setting), votes=Looking())
    wanted = (block for i in some for block in blocks_of(i, Phase.SELECTION, plan.question.n0))
    seen = defaultdict[int, list[Seen]](list)
    for votes in machine.executor(inputs, job).run(wanted):
        assert isinstance(votes.beside, Seen)
        seen[votes.position].append(votes.beside)
    return [Seen.join(parts) for parts in seen.values()]


def _lead(seen: Sequence[NDArray[np.float64]]) -> float:
    """By how much the largest mean score usually leads the next."""
    leads = [np.diff(np.sort(scores.mean(axis=0))[-2:])[0] for scores in seen]
    return float(np.median(leads)) or 1.0
