"""Scores that are drawn once, for any kind of votes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.certificate import PROVED, Certificate, certificates
from smoothcert.certification.drawing import collect
from smoothcert.certification.planning import job_of, open_machine
from smoothcert.certification.widths import Looking, Seen
from smoothcert.classifier import SmoothedClassifier
from smoothcert.plan import Classifier, Kind, Question, Slopes
from smoothcert.plan.schedules import Fixed
from smoothcert.sampling.blocks import BLOCK, Block, Input, Phase, Votes
from smoothcert.sampling.engines import Engines


@dataclass(frozen=True)
class DrawnScores:
    """The scores (inputs, draws, classes) of the selection draws and of the estimation draws."""

    selection: NDArray[np.float32]
    estimation: NDArray[np.float32]

    def certify(
        self, classifier: Classifier, question: Question, slopes: Slopes | None = None, basis: str = PROVED
    ) -> list[Certificate]:
        """The certificates that the classifier's votes would have, had they been drawn with this noise."""
        inputs = len(self.selection)
        asked = question.about(classifier)
        schedule = asked.schedule(classifier, asked.alpha, inputs)
        tally = collect(_Recount(self, classifier.votes), schedule, classifier, inputs, Phase.ESTIMATION)
        return certificates(classifier, asked, tally, slopes=slopes, basis=basis)


@dataclass(frozen=True)
class _Recount:
    """Blocks in, votes out: those of draws that are known."""

    scores: DrawnScores
    kind: Kind

    def run(self, blocks: Iterable[Block | None]) -> Iterator[Votes]:
        """The votes of consecutive blocks together; None asks for those of all blocks before it."""
        stretch: list[Block] = []
        for block in blocks:
            if stretch and (block is None or not block.follows(stretch[-1])):
                yield self._votes(stretch)
                stretch = []
            if block is not None:
                stretch.append(block)
        if stretch:
            yield self._votes(stretch)

    def _votes(self, stretch: Sequence[Block]) -> Votes:
        first, last = stretch[0], stretch[-1]
        known = self.scores.selection if first.phase is Phase.SELECTION else self.scores.estimation
        rows = torch.from_numpy(known[first.position, BLOCK * first.index : BLOCK * last.index + last.draws])
        counts = np.bincount(rows.argmax(dim=1).numpy())
        classes = counts.nonzero()[0]
        beside = self.kind.count(self.kind.ballots(rows).numpy(), first.candidate)
        stretched = first.position, first.phase, first.index, last.index + 1
        return Votes(*stretched, len(rows), classes, counts[classes], 0.0, beside)


def draw_scores(smoothed: SmoothedClassifier, inputs: Sequence[Input], n0: int, n: int) -> NDArray[np.float32]:
    """The scores (inputs, n0 + n, classes) of the draws that certificates of the inputs rest on: n0 that select the
    class, then n that prove the radius, as the smoothed classifier with its engine, batch and seed draws them. They
    are for Lipschitz constants, too, so that no engine coarser than float32 is chosen."""
    classifier, draws = smoothed.classifier, {Phase.SELECTION: n0, Phase.ESTIMATION: n}
    engines, x = Engines(smoothed.model), inputs[0].array
    with open_machine(engines, classifier, smoothed.setting, x, n0 + n, exact=True) as machine:
        setting = smoothed.setting.settled(machine.identity, machine.batch, smoothed.seed)
        job = dataclasses.replace(job_of(classifier, setting), votes=Looking())
        schedule = Fixed(inputs=len(inputs), draws=draws)
        seen = [votes.beside for votes in machine.executor(inputs.__getitem__, job).run(schedule)]
    rows = np.concatenate([each.scores for each in seen if isinstance(each, Seen)]).astype(np.float32)
    return rows.reshape(len(inputs), n0 + n, classifier.num_classes)
