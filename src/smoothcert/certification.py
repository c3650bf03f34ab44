"""certify_dataset: a model and a data set to a stored run that survives interruption."""

from __future__ import annotations

import dataclasses
import platform
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smoothcert.bounds import DEFAULT_METHOD
from smoothcert.certificate import find_method
from smoothcert.checks import check_batch, check_noise, check_seed, check_whole
from smoothcert.data import Dataset, as_dataset, select
from smoothcert.errors import InputError, RunError
from smoothcert.sampling.batches import choose_batch
from smoothcert.sampling.blocks import BLOCK, Input, Votes, blocks_of, input_digest
from smoothcert.sampling.engines import open_engine
from smoothcert.sampling.executor import Executor
from smoothcert.sampling.schedules import Adaptive, Fixed, Schedule, sequential_plan
from smoothcert.store.file import RunFile
from smoothcert.store.run import Run
from smoothcert.store.schema import Info, Plan
from smoothcert.store.thumbnails import thumbnail

OnProgress = Callable[[int, float], None]
"""Called now and then with the draws made in this session and the share of the run that is done."""


def certify_dataset(
    model: torch.nn.Module | Callable[..., Any] | Path,
    data: Any,
    *,
    sigma: float,
    out: str | Path,
    n0: int = 100,
    n: int = 10_000,
    alpha: float = 0.001,
    method: str = DEFAULT_METHOD,
    radii: Sequence[float] | None = None,
    width: float | None = None,
    max_n: int = 100_000,
    futility: float = 0.05,
    noise: str = "gaussian",
    seed: int = 0,
    engine: str = "auto",
    batch: int | str = "auto",
    num_classes: int | None = None,
    skip: int = 1,
    limit: int | None = None,
    images: bool = True,
    model_name: str | None = None,
    on_progress: OnProgress = lambda draws, done: None,
) -> Run:
    """Certifies every `skip`-th input of `data`, at most `limit` of them, into the run file `out`.

    Called again with the same arguments it goes on where it was stopped, and ends with the votes of a run that was
    never stopped. `data` is a data set of `smoothcert.data`, a path, or a torch map-style data set.

    With `radii` or `width` each input gets as many draws as it needs, at most `max_n` (`bounds.sequential`).
    """
    sequential = sequential_plan(sigma, alpha, radii, width, max_n, futility)
    find_method(method)
    check_noise(noise)
    check_batch(batch)
    n0, n, seed = check_whole("n0", n0, 1), check_whole("n", n, 1), check_seed(seed)
    limit = None if limit is None else check_whole("limit", limit, 1)
    dataset = as_dataset(data)
    rows = select(dataset, skip=check_whole("skip", skip, 1), limit=limit)
    if not rows:
        raise InputError("the data set has no inputs to certify: check the path, --skip and --limit.")
    runner = open_engine(model, engine)
    if num_classes is None:
        num_classes = count_classes(model, dataset)
    check_whole("num_classes", num_classes, 2)
    path = Path(out)
    earlier = RunFile.plan_of(path)
    rows_a_batch = earlier.batch if earlier and batch == "auto" else choose_batch(batch, runner, dataset[rows[0]].array)
    with RunFile.open_to_write(path) as file:
        stored = file.plan
        plan = Plan(
            method="adaptive" if sequential else method,
            alpha=float(alpha),
            n0=n0,
            n=max_n if sequential else n,
            sigma=float(sigma),
            noise=noise,
            seed=seed,
            num_classes=num_classes,
            model=runner.fingerprint,
            engine=runner.identity,
            batch=rows_a_batch,
            data=dataset.fingerprint,
            preprocessing=dataset.preprocessing,
            skip=skip,
            limit=limit,
            total=len(rows),
            radii=sequential.radii if sequential else (),
            width=width,
            futility=futility if sequential else None,
        )
        if stored is None:
            file.declare(plan, _info(model, model_name, dataset))
        else:
            _refuse_another(stored, plan, file.path)
        executor = Executor(
            runner,
            _Inputs(file, dataset, rows, plan.num_classes, images),
            sigma=plan.sigma,
            num_classes=plan.num_classes,
            seed=plan.seed,
            batch=plan.batch,
        )
        _recompute_one(file, executor, plan)
        _sample(file, executor, plan, on_progress)
    return Run(path)


def _sample(file: RunFile, executor: Executor, plan: Plan, on_progress: OnProgress) -> None:
    """Draws every block that is wanted and not stored yet; whatever ends it early, what was drawn is kept."""
    schedule: Schedule
    if plan.sequential is None:
        schedule = Fixed(inputs=plan.total, n0=plan.n0, n=plan.n)
    else:
        schedule = Adaptive(
            plan.sequential,
            inputs=plan.total,
            n0=plan.n0,
            num_classes=plan.num_classes,
            decided=[claim.position for claim in file.claims()],
        )
        file.looks = schedule.looks
    draws = 0

    def tell(votes: Votes) -> None:
        claim = schedule.tell(votes)
        if claim is not None:
            file.add_claim(claim)
        on_progress(draws, schedule.done)

    for votes in file.votes():
        tell(votes)
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


def _recompute_one(file: RunFile, executor: Executor, plan: Plan) -> None:
    """Draws a stored block again, the most divided one: a model that changed in any way is likeliest to differ there.

    Weights do not tell everything: a callable has none, and the code of a module may change around them.
    """
    stored = min(file.votes(), key=lambda v: (v.last - v.first, v.counts.max() / v.draws), default=None)
    if stored is None:
        return
    counts = np.zeros(plan.num_classes, dtype=np.int64)
    draws = stored.first * BLOCK + stored.draws
    for votes in executor.run(blocks_of(stored.position, stored.phase, draws, start=stored.first)):
        counts[votes.classes] += votes.counts
    counts[stored.classes] -= stored.counts
    if counts.any():
        raise InputError(
            f"{file.path} has other votes for its input number {stored.position} than this model casts now: the "
            f"model, its code or the machine's arithmetic has changed, so start a new run with another --out."
        )


class _Inputs:
    """The input at each position of the run, written to the file when first met and checked when met again."""

    def __init__(self, file: RunFile, dataset: Dataset, rows: Sequence[int], num_classes: int, images: bool) -> None:
        self.file, self.dataset, self.rows, self.num_classes, self.images = (
            file,
            dataset,
            rows,
            num_classes,
            images,
        )
        self.digests = {position: digest for position, _, _, digest in file.inputs()}

    def __call__(self, position: int) -> Input:
        example = self.dataset[self.rows[position]]
        if not 0 <= example.label < self.num_classes:
            raise InputError(
                f"input {example.id} has label {example.label}, but the model has {self.num_classes} classes: check "
                f"the labels or --classes."
            )
        digest = input_digest(example.array)
        if position not in self.digests:
            picture = thumbnail(example.array) if self.images else None
            self.file.add_input(position, example.id, example.label, digest, picture)
            self.digests[position] = digest
        elif self.digests[position] != digest:
            raise InputError(f"input {example.id} is not the one {self.file.path} was started with: the data changed.")
        return Input(example.id, example.array)


def count_classes(model: torch.nn.Module | Callable[..., Any] | Path, dataset: Dataset) -> int:
    """How many classes the model scores, or the data set names where the model returns labels."""
    engine, x = open_engine(model), dataset[0].array
    with engine.ready():
        try:
            output = engine(torch.from_numpy(x[None]).to(engine.device))
        except InputError:
            raise
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(
                f"the model does not take an input of shape {x.shape} ({reason}): check the model and the "
                f"preprocessing of the data."
            ) from error
    if output.ndim == 2:
        return int(output.shape[1])
    if dataset.classes is None:
        raise InputError("the model returns labels and the data set names no classes: pass --num-classes.")
    return len(dataset.classes)


def _info(model: Any, model_name: str | None, dataset: Dataset) -> Info:
    packages = ("smoothcert", "numpy", "scipy", "torch")
    program = Path(sys.argv[0]).name.replace("__main__.py", "smoothcert")
    return Info(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=shlex.join([program, *sys.argv[1:]]),
        model=model_name or type(model).__name__,
        data=dataset.description,
        classes=dataset.classes,
        versions={"python": platform.python_version(), **{name: version(name) for name in packages}},
    )


WORDS = {
    "model": "another model (its weights or structure differ)",
    "data": "another data set (its files differ)",
}


def _refuse_another(stored: Plan, plan: Plan, path: Path) -> None:
    """A run goes on only under the plan it declared."""
    for field in dataclasses.fields(Plan):
        before, now = getattr(stored, field.name), getattr(plan, field.name)
        if before == now:
            continue
        if field.name in ("n", "n0"):
            raise InputError(
                f"{path} declared {field.name} = {before}, not {now}: changing it after looking at the votes would "
                f"void the level alpha, so start a new run with another --out."
            )
        what = WORDS.get(field.name, f"{field.name} = {before}, not {now}")
        raise InputError(f"{path} was started with {what}: use the same settings, or another --out for a new run.")
