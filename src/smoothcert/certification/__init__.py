"""A classifier and a data set to a stored run that survives interruption: planning, drawing, redrawing."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path

from smoothcert.certification.drawing import Inputs, OnProgress, draw, estimate_constants
from smoothcert.certification.planning import (
    VERIFIED_INPUTS,
    constant_of,
    info_of,
    job_of,
    noise_error,
    noise_of,
    open_machine,
    refuse_another,
    require_precision,
    require_separate_rows,
    resumed,
    settle,
    verify,
)
from smoothcert.certification.redrawing import UNCHECKED, require_determinism
from smoothcert.data import Dataset
from smoothcert.errors import RunError
from smoothcert.plan import Plan
from smoothcert.sampling.blocks import Input
from smoothcert.sampling.engines import Engines
from smoothcert.store.file import RunFile
from smoothcert.store.run import Run

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Care:
    """What is kept beside the votes and checked around them; it changes no vote."""

    images: bool = True
    model_name: str | None = None
    check_determinism: bool = False
    verify_engine: bool = False
    on_progress: OnProgress = lambda draws, done: None


def certify_into(path: Path, engines: Engines, dataset: Dataset, asked: Plan, fresh: int, care: Care) -> Run:
    """Draws what is asked into the run file, going on where it was stopped, and opens it to read.

    A new run for which no seed is asked is drawn from the seed `fresh`.
    """
    rows = asked.selection.rows(dataset)
    first = dataset[rows[0]]
    noise_of(asked.classifier).check(first.array, first.id)
    earlier = RunFile.plan_of(path)
    asked = dataclasses.replace(
        asked,
        setting=resumed(asked, earlier, fresh),
        noise_error=noise_error(asked.classifier, asked.question, first.array),
        constant=constant_of(asked.question, engines.model, first.array, earlier),
    )
    draws = len(rows) * (asked.question.n0 + asked.question.draws.expected)
    with open_machine(engines, asked.classifier, asked.setting, first.array, draws) as machine:
        logger.info(machine.reason)
        require_precision(asked.question, machine.identity)
        if care.verify_engine:
            xs = [dataset[row].array for row in rows[:VERIFIED_INPUTS]]
            verify(engines, machine, xs, asked.classifier.sigma)
        plan = settle(asked, machine)
        job = job_of(plan.classifier, plan.setting)
        require_separate_rows(engines.model, machine, Input(first.id, first.array), job)
        with RunFile.open_to_write(path) as file:
            if file.plan is None:
                file.declare(plan, info_of(engines.model, care.model_name, dataset))
            else:
                refuse_another(file.plan, plan, path)
                if file.rejected not in (None, UNCHECKED):
                    raise RunError(f"{path} certifies nothing: {file.rejected}")
            inputs = Inputs(file, dataset, rows, plan.classifier, care.images)
            executor = machine.executor(inputs, job)
            draw(file, executor, plan, care.on_progress)
            if care.check_determinism or file.rejected == UNCHECKED:
                require_determinism(file, executor, plan.setting.known_seed)
            if plan.estimates:
                estimate_constants(file, engines.model, dataset, rows)
    return Run(path)
