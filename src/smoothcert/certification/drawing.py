"""From blocks that are wanted to votes that are kept, in a file or in memory."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from smoothcert.certification.first_pass import Reader
from smoothcert.certification.redrawing import recompute, telling
from smoothcert.errors import InputError, RunError
from smoothcert.lipschitz.constant import local_constants
from smoothcert.plan import SHARES, Classifier, Plan, Tally
from smoothcert.plan.schedules import Schedule
from smoothcert.sampling.blocks import Claim, Input, Phase, Votes
from smoothcert.sampling.machine import Draws
from smoothcert.store.file import RunFile

logger = logging.getLogger(__name__)
AT_ONCE = 32
"""Inputs whose local constants are searched together, and then kept."""

SAMPLES = 10
"""Rows among which the one that is drawn again is looked for."""

OnProgress = Callable[[int, float], None]
"""Called now and then with the draws made in this session and the share of the run that is done."""


def collect(executor: Draws, schedule: Schedule, classifier: Classifier, inputs: int, last: Phase) -> Tally:
    """The votes that a schedule wants, added up in memory; draws of the last phase are the estimation sample."""
    c = classifier.num_classes
    tally = Tally.zeros(inputs, c, classifier.votes.others(inputs, c))
    claims: dict[int, Claim] = {}
    for votes in executor.run(schedule):
        tally.add(votes, votes.position, int(votes.phase is last))
        if claim := schedule.tell(votes):
            claims[claim.position] = claim
    if claims:
        tally.claims = [claims[position] for position in sorted(claims)]
    return tally.rows(slice(None))


def draw(file: RunFile, executor: Draws, plan: Plan, unchanged: Callable[[int], bool], on_progress: OnProgress) -> None:
    """Draws every block that is wanted and not stored yet; whatever ends it early, what was drawn is kept.

    What is stored is told first, and one row of it drawn again, of an input that is unchanged.
    """
    claims = file.claims()
    decided = [claim.position for claim in claims]
    schedule = plan.question.schedule(plan.classifier, plan.level, plan.selection.total, decided)
    file.looks = schedule.looks
    draws = 0

    def tell(votes: Votes) -> None:
        claim = schedule.tell(votes)
        if claim is not None:
            file.add_claim(claim)
        on_progress(draws, schedule.done)

    def stored() -> Iterator[Votes]:
        for votes in file.votes():
            tell(votes)
            yield votes

    samples = heapq.nsmallest(SAMPLES, stored(), key=telling)
    file.check_claims(claims)
    for sample in samples:
        if unchanged(sample.position):
            recompute(file, executor, sample)
            break
    try:
        for votes in executor.run(schedule):
            file.add_votes(votes)
            draws += votes.draws
            tell(votes)
    except BaseException:
        with suppress(RunError):
            file.commit()
        raise
    file.commit()


def estimate_constants(file: RunFile, model: Any, inputs: Callable[[int], Input], plan: Plan) -> None:
    """Searches the constant near each input that has none yet."""
    known, shares = file.constants(), plan.classifier.votes.shares if plan.local_of == SHARES else None
    missing = [position for position in range(plan.selection.total) if position not in known]
    for start in range(0, len(missing), AT_ONCE):
        chunk = missing[start : start + AT_ONCE]
        values = local_constants(model, [inputs(position).array for position in chunk], shares)
        file.add_constants(dict(zip(chunk, values.tolist(), strict=True)))
        logger.info("searched the steepest gradients near %d of %d inputs", start + len(chunk), len(missing))


class Inputs:
    """The input at each position of the run, compared with what was kept of it before the first draw.

    Files of older formats keep an input when it is first met.
    """

    def __init__(self, file: RunFile, reader: Reader, rows: Sequence[int]) -> None:
        self.file, self.reader, self.rows = file, reader, rows

    def __call__(self, position: int) -> Input:
        example, record = self.reader.read(self.rows[position], position)
        kept = self.file.input(position)
        if kept is None:
            self.reader.keep(self.file, example, record)
        elif kept != record:
            what = "its label" if kept.digest == record.digest else "the data"
            raise InputError(f"input {example.id} is not the one {self.file.path} was started with: {what} changed.")
        return Input(example.id, example.array)

    def unchanged(self, position: int) -> bool:
        """Is the input still what was kept?"""
        try:
            self(position)
        except InputError:
            return False
        return True
