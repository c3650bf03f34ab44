"""From blocks that are wanted to votes that are kept, in a file or in memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from smoothcert.certification.planning import noise_of
from smoothcert.certification.redrawing import recompute, telling
from smoothcert.data import Dataset
from smoothcert.errors import InputError, RunError
from smoothcert.lipschitz.constant import local_constants
from smoothcert.plan import Classifier, Plan, Tally
from smoothcert.plan.schedules import Schedule
from smoothcert.sampling.blocks import Claim, Input, Phase, Votes, input_digest
from smoothcert.sampling.machine import Draws
from smoothcert.store.file import RunFile
from smoothcert.store.schema import InputRecord
from smoothcert.store.thumbnails import thumbnail

logger = logging.getLogger(__name__)
AT_ONCE = 32
"""Inputs whose local constants are searched together, and then kept."""

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
    return tally


def draw(file: RunFile, executor: Draws, plan: Plan, on_progress: OnProgress) -> None:
    """Draws every block that is wanted and not stored yet; whatever ends it early, what was drawn is kept.

    What is stored is told first, and one row of it drawn again.
    """
    decided = [claim.position for claim in file.claims()]
    schedule = plan.question.schedule(plan.classifier, plan.level, plan.selection.total, decided)
    file.looks = schedule.looks
    draws = 0

    def tell(votes: Votes) -> None:
        claim = schedule.tell(votes)
        if claim is not None:
            file.add_claim(claim)
        on_progress(draws, schedule.done)

    sample: Votes | None = None
    for votes in file.votes():
        sample = votes if sample is None else min(sample, votes, key=telling)
        tell(votes)
    if sample is not None:
        recompute(file, executor, sample)
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


def estimate_constants(file: RunFile, model: Any, dataset: Dataset, rows: Sequence[int]) -> None:
    """Searches the constant near each input that has none yet."""
    known = file.constants()
    missing = [position for position in range(len(rows)) if position not in known]
    for start in range(0, len(missing), AT_ONCE):
        chunk = missing[start : start + AT_ONCE]
        values = local_constants(model, [dataset[rows[position]].array for position in chunk])
        file.add_constants(dict(zip(chunk, values.tolist(), strict=True)))
        logger.info("searched the steepest gradients near %d of %d inputs", start + len(chunk), len(missing))


class Inputs:
    """The input at each position of the run, written to the file when first met and checked when met again."""

    def __init__(
        self, file: RunFile, dataset: Dataset, rows: Sequence[int], classifier: Classifier, images: bool
    ) -> None:
        self.file, self.dataset, self.rows, self.images = file, dataset, rows, images
        self.num_classes, self.noise = classifier.num_classes, noise_of(classifier)
        self.digests = {record.position: record.digest for record in file.inputs()}

    def __call__(self, position: int) -> Input:
        example = self.dataset[self.rows[position]]
        if not 0 <= example.label < self.num_classes:
            raise InputError(
                f"input {example.id} has label {example.label}, but the model has {self.num_classes} classes: check "
                f"the labels and their order."
            )
        self.noise.check(example.array, example.id)
        digest = input_digest(example.array)
        if position not in self.digests:
            picture = thumbnail(example.array) if self.images else None
            self.file.add_input(InputRecord(position, example.id, example.label, digest), picture)
            self.digests[position] = digest
        elif self.digests[position] != digest:
            raise InputError(f"input {example.id} is not the one {self.file.path} was started with: the data changed.")
        return Input(example.id, example.array)
