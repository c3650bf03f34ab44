"""A classifier and a data set to a stored run that survives interruption: first pass, planning, drawing, redrawing."""

from __future__ import annotations

import dataclasses
import logging
import math
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from smoothcert.certification.bare import Bare, claim_margins
from smoothcert.certification.clean import classify_clean
from smoothcert.certification.cost import Cost, draws_per_second
from smoothcert.certification.drawing import Inputs, OnProgress, draw, estimate_constants
from smoothcert.certification.fingerprint import fingerprint_of
from smoothcert.certification.first_pass import OnRead, Reader, complete, first_pass
from smoothcert.certification.planning import (
    VERIFIED_INPUTS,
    as_stored,
    constants_of,
    info_of,
    job_of,
    noise_error,
    open_machine,
    refuse_another,
    require_precision,
    require_separate_rows,
    resumed,
    settle,
    verify,
)
from smoothcert.certification.quantising import find_network, keep_network, quantise_once, spread
from smoothcert.certification.redrawing import UNCHECKED, require_determinism
from smoothcert.certification.widths import with_width
from smoothcert.data import Dataset, Example
from smoothcert.errors import InputError, RunError
from smoothcert.leaving import before_leaving
from smoothcert.lipschitz.constant import Steepness
from smoothcert.modules import no_exit
from smoothcert.plan import Plan
from smoothcert.sampling.blocks import Input
from smoothcert.sampling.engines import Engines
from smoothcert.sampling.machine import Machine
from smoothcert.store.counts import check_size
from smoothcert.store.file import RunFile
from smoothcert.store.new_run import new_file
from smoothcert.store.opening import File, is_file
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
    on_read: OnRead = lambda inputs, done: None


@no_exit()
def certify_into(path: Path, engines: Engines, dataset: Dataset, asked: Plan, fresh: int, care: Care) -> Run:
    """Draws what is asked into the run file, going on where it was stopped, and opens it to read.

    A file is there from when every input was read and the plan is settled. One that this call has made, and in which
    nothing was drawn when it failed, is removed. The engines are made of the model as it is now, and so is the
    fingerprint that the file keeps. A new run for which no seed is asked is drawn from the seed `fresh`.
    """
    engines.renew()
    size, earlier = math.prod(dataset.shape), RunFile.plan_of(path)
    asked = dataclasses.replace(
        asked,
        classifier=asked.classifier if earlier is None else asked.classifier.as_in(earlier.classifier),
        setting=resumed(asked, earlier, fresh),
        noise_error=noise_error(asked.classifier, asked.question, size),
    )
    reader = Reader(dataset, asked.classifier, care.images)
    with ExitStack() as undo, ExitStack() as stack:
        if earlier is None:
            with new_file(path) as made:
                check_size(made.path, asked.selection.total, asked.classifier.num_classes)
                selection = first_pass(made, reader, asked.selection, care.on_read)
                plan, machine = _prepared(engines, dataset, dataclasses.replace(asked, selection=selection), None, care)
                stack.enter_context(machine)
                made.declare(plan, info_of(engines.model, care.model_name, dataset))
                keep_network(path, plan, engines, undo)
                undo.callback(_remove_unused, path, made.opened.file)
        else:
            asked = dataclasses.replace(asked, selection=asked.selection.as_in(earlier.selection))
            find_network(path, earlier, engines)
            plan, machine = _prepared(engines, dataset, asked, earlier, care)
            stack.enter_context(machine)
        file = stack.enter_context(RunFile.open_to_write(path))
        stack.enter_context(before_leaving(lambda: _leave(file, undo)))
        if file.plan is None or (earlier is None and not file.declares(plan)):
            raise RunError(f"{path} was replaced meanwhile: run the same command again.")
        if earlier is not None:
            refuse_another(file.plan, plan, path)
            plan = as_stored(file.plan, plan, path)
        _certify(file, machine, engines, reader, plan, care)
        undo.pop_all()
    return Run(path, patience=math.inf)


def _remove_unused(path: Path, made: File) -> None:
    """Removes the run that was begun in the file that was made, if nothing was drawn; no other."""
    with suppress(InputError, RunError):
        if is_file(path, made):
            with RunFile.open_to_write(path) as file:
                if file.opened.file == made and not file.drawn:
                    file.discard()


def _leave(file: RunFile, undo: ExitStack) -> None:
    """Keeps what was drawn where the process is left at once; a new run without votes is undone."""
    file.commit()
    if not file.drawn:
        file.close()
        undo.close()


def _prepared(
    engines: Engines, dataset: Dataset, asked: Plan, earlier: Plan | None, care: Care
) -> tuple[Plan, Machine]:
    """The plan with all that is known once the machine is, and the machine."""
    rows = asked.selection.rows(dataset)
    first = dataset[rows[0]].array
    model = fingerprint_of(engines.model, first.shape, "" if earlier is None else earlier.classifier.model)
    fresh = model if earlier is None else None
    quantise_once(engines, asked.setting, asked.classifier.sigma, lambda: spread(dataset, rows), fresh)
    constant, pairs = constants_of(asked.question, engines.model, first)
    asked = dataclasses.replace(
        asked,
        classifier=dataclasses.replace(asked.classifier, model=model),
        constant=constant,
        pairs=pairs,
        local_of=asked.local_constants_of if earlier is None else earlier.local_of,
    )
    draws = len(rows) * (asked.question.n0 + asked.question.draws.expected)
    machine = open_machine(
        engines, asked.classifier, asked.setting, first, draws, exact=asked.question.lipschitz is not None
    )
    try:
        logger.info(machine.reason)
        require_precision(asked.question, machine.identity)
        if care.verify_engine:
            verify(engines, machine, [dataset[row].array for row in rows[:VERIFIED_INPUTS]], asked.classifier.sigma)
        plan = settle(asked, machine)
        job = job_of(plan.classifier, plan.setting)
        require_separate_rows(engines.model, machine, Input(str(rows[0]), first), job)
        if plan.classifier.votes.is_open and earlier is None:
            plan = with_width(plan, machine, lambda position: _input(dataset[rows[position]]))
        return plan, machine
    except BaseException:
        machine.__exit__(None, None, None)
        raise


def _input(example: Example) -> Input:
    return Input(example.id, example.array)


def _certify(file: RunFile, machine: Machine, engines: Engines, reader: Reader, plan: Plan, care: Care) -> None:
    """Draws what is missing, and checks what is to be checked."""
    if file.rejected not in (None, UNCHECKED):
        raise RunError(f"{file.path} certifies nothing: {file.rejected}")
    complete(file, reader, plan.selection)
    inputs = Inputs(file, reader, plan.selection.rows(reader.dataset))
    if plan.classifier.is_bare:
        assert plan.constant is not None
        bare = Bare.of(engines, reader.dataset.shape, Steepness(plan.constant, plan.known_pairs))
        claim_margins(file, bare, inputs, plan.selection.total, care.on_progress)
        return
    job = job_of(plan.classifier, plan.setting)
    classify_clean(file, machine, inputs, job, plan.selection.total)
    if not file.drawn:
        logger.info("%s", Cost.of(plan, draws_per_second(machine, inputs, job)))
    executor = machine.executor(inputs, job)
    draw(file, executor, plan, inputs.unchanged, care.on_progress)
    if care.check_determinism or file.rejected == UNCHECKED:
        require_determinism(file, executor, plan.setting.known_seed)
    if plan.estimates:
        estimate_constants(file, engines.model, inputs, plan)
