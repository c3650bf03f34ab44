"""certify_dataset: a model and a data set to a stored run that survives interruption."""

from __future__ import annotations

import dataclasses
import heapq
import platform
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime, timezone
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.bounds import DEFAULT_INTERVAL, DEFAULT_METHOD
from smoothcert.certificate import find_interval, find_method
from smoothcert.checks import check_batch, check_seed, check_shard, check_whole, less_error
from smoothcert.data import Dataset, as_dataset, select
from smoothcert.errors import InputError, RunError
from smoothcert.lipschitz.sources import LOCAL, PRODUCT, check_lipschitz, local_constants, scores_constant
from smoothcert.sampling.blocks import BLOCK, NO_CANDIDATE, Block, Input, Votes, blocks_of, input_digest, join
from smoothcert.sampling.choice import Choice, choose_engine
from smoothcert.sampling.engines import Engine, Model, name_of, open_engine
from smoothcert.sampling.engines.agreement import count_differences
from smoothcert.sampling.executor import Executor
from smoothcert.sampling.noise import Noise, open_noise
from smoothcert.sampling.schedules import Adaptive, Fixed, Schedule, SelectFirst, sequential_plan
from smoothcert.sampling.simplex import HARD, check_votes, shares
from smoothcert.scale import Cluster, ClusterExecutor, Fleet
from smoothcert.store.file import RunFile
from smoothcert.store.run import Run
from smoothcert.store.schema import Info, Plan
from smoothcert.store.thumbnails import thumbnail

REDRAWN, MOST_REDRAWN, MOST_DIVIDED = 0.02, 100_000, 10
"""What --check-determinism draws again: this share of the rows, about so many draws at most, and so many rows."""

UNCHECKED = "it is not known yet whether its model is deterministic, so let certify end, or run it again."
"""Stands in the file while --check-determinism draws."""

ADAPTIVE_SAVES = 20
"""How many times fewer draws than max_n an input takes on average where radii decide; to estimate the time of a run."""

VERIFIED_INPUTS, VERIFIED_DRAWS = 10, 10_000

AT_ONCE = 32
"""Inputs whose local constants are searched together, and then kept."""

AnyExecutor = Executor | ClusterExecutor

OnProgress = Callable[[int, float], None]
"""Called now and then with the draws made in this session and the share of the run that is done."""

OnNote = Callable[[str], None]
"""Called with a line on the engine that was chosen."""


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
    votes: str = HARD,
    temperature: float = 1.0,
    interval: str = DEFAULT_INTERVAL,
    lipschitz: float | str | None = None,
    radii: Sequence[float] | None = None,
    width: float | None = None,
    max_n: int = 100_000,
    futility: float = 0.05,
    noise: str = "gaussian",
    levels: int | None = None,
    seed: int = 0,
    engine: str = "auto",
    batch: int | str = "auto",
    num_classes: int | None = None,
    skip: int = 1,
    limit: int | None = None,
    shard: tuple[int, int] | None = None,
    check_determinism: bool = False,
    cluster: Cluster | None = None,
    images: bool = True,
    model_name: str | None = None,
    verify_engine: bool = False,
    on_progress: OnProgress = lambda draws, done: None,
    on_note: OnNote = lambda note: None,
) -> Run:
    """Certifies every `skip`-th input of `data`, at most `limit` of them, into the run file `out`.

    Called again with the same arguments it goes on where it was stopped, and ends with the votes of a run that was
    never stopped. `data` is a data set of `smoothcert.data`, a path, or a torch map-style data set.

    With `radii` or `width` each input gets as many draws as it needs, at most `max_n` (`bounds.sequential`).

    With soft `votes` ("softmax" or "sparsemax" of the scores divided by `temperature`) `interval` takes the place of
    `method`, and `lipschitz` may be a bound on the ℓ2 constant of the scores, "product" to prove one from the layers,
    or "local" to estimate one near each input: radii from an estimate are no proof, and `Run.certificates` gives them
    only where it is asked for `estimated` ones.

    `noise` is "gaussian", or "grid" for data on the grid of multiples of 1/`levels` (the data set's own unless given);
    `SmoothedClassifier` says what each of them guarantees.

    `shard=(i, k)` certifies the i-th of k parts, for `store.shards.merge_runs` to join. `check_determinism` draws some
    votes again at the end; where they are others the run certifies nothing. With a `cluster` its workers draw, and this
    process writes. `engine` and `batch` are measured unless given (`sampling.choice`), and kept in the file: a resumed
    run uses them again.
    """
    sequential = sequential_plan(sigma, alpha, radii, width, max_n, futility)
    find_method(method)
    find_interval(interval)
    check_batch(batch)
    n0, n, seed = check_whole("n0", n0, 1), check_whole("n", n, 1), check_seed(seed)
    check_votes(votes, temperature, n0=n0, n=n, adaptive=sequential is not None)
    source = check_lipschitz(lipschitz, votes=votes, temperature=temperature, noise=noise, model=model)
    limit = None if limit is None else check_whole("limit", limit, 1)
    dataset = as_dataset(data)
    rows = select(dataset, skip=check_whole("skip", skip, 1), limit=limit)
    if not rows:
        raise InputError("the data set has no inputs to certify: check the path, --skip and --limit.")
    if shard is not None:
        rows = rows[check_shard(shard, len(rows), batch)]
    if num_classes is None:
        num_classes = count_classes(model, dataset)
    check_whole("num_classes", num_classes, 2)
    drawn, first = open_noise(noise, sigma, dataset.levels if levels is None else levels), dataset[rows[0]]
    drawn.check(first.array, first.id)
    error = drawn.error((max_n if sequential else n) * first.array.size)
    less_error(alpha, error)
    path = Path(out)
    earlier = RunFile.plan_of(path)
    proved = earlier is not None and earlier.lipschitz == source == PRODUCT  # by the model that is compared below
    constant = earlier.constant if earlier and proved else scores_constant(lipschitz, model, first.array.shape)
    if earlier and batch == "auto":
        batch = earlier.batch
    if engine == "auto" and (earlier or shard):  # other draws of the run were or will be made elsewhere: by one engine
        engine = name_of(earlier.engine) if earlier else "torch"
    draws = len(rows) * (n0 + (max_n // ADAPTIVE_SAVES if sequential else n))
    machine: AbstractContextManager[Engine | Fleet]
    if cluster is None:
        choice = choose_engine(model, engine, batch, first.array, sigma=sigma, draws=draws)
        on_note(choice.reason)
        if verify_engine:
            on_note(_verify(model, choice, [dataset[row].array for row in rows[:VERIFIED_INPUTS]], sigma))
        machine = nullcontext(choice.engine)
    elif verify_engine:
        raise InputError("--verify-engine runs the model in this process: leave out the cluster.")
    else:
        machine = Fleet(cluster, model, engine)
    with machine as runner:
        rows_a_batch = runner.choose_batch(batch, first.array) if isinstance(runner, Fleet) else choice.batch
        with RunFile.open_to_write(path) as file:
            stored = file.plan
            plan = Plan(
                method="adaptive" if sequential else method if votes == HARD else interval,
                alpha=float(alpha),
                n0=n0,
                n=max_n if sequential else n,
                sigma=float(sigma),
                noise=drawn.name,
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
                levels=drawn.levels,
                noise_error=error,
                shard=shard,
                votes=votes,
                temperature=float(temperature),
                lipschitz=source,
                constant=constant,
            )
            if stored is None:
                file.declare(plan, _info(model, model_name, dataset))
            else:
                _refuse_another(stored, plan, file.path)
                if file.rejected not in (None, UNCHECKED):
                    raise RunError(f"{file.path} certifies nothing: {file.rejected}")
            inputs = _Inputs(file, dataset, rows, plan.num_classes, drawn, images)
            settings: dict[str, Any] = {"noise": drawn, "num_classes": plan.num_classes, "seed": plan.seed}
            if votes != HARD:
                settings["shares"] = partial(shares, votes, plan.temperature)
            executor: AnyExecutor
            if isinstance(runner, Fleet):
                executor = ClusterExecutor(runner, inputs, batch=plan.batch, **settings)
            else:
                executor = Executor(runner, inputs, batch=plan.batch, **settings)
            _recompute_one(file, executor, plan)
            _sample(file, executor, plan, on_progress)
            if check_determinism or file.rejected == UNCHECKED:
                _check_determinism(file, executor, plan)
            if source == LOCAL:
                _estimate_constants(file, model, dataset, rows, on_note)
    return Run(path)


def _verify(model: Model, choice: Choice, xs: Sequence[NDArray[np.float32]], sigma: float) -> str:
    """How often the engine's labels differ from those of eager PyTorch, as a sentence."""
    if not isinstance(model, torch.nn.Module):
        raise InputError("--verify-engine compares with eager PyTorch, which runs torch modules only: leave it out.")
    differ = count_differences(
        choice.engine, open_engine(model, "torch"), xs, sigma=sigma, batch=choice.batch, draws=VERIFIED_DRAWS
    )
    return f"{choice.engine.identity}: {differ} of {VERIFIED_DRAWS:,} labels differ from those of eager PyTorch"


def _sample(file: RunFile, executor: AnyExecutor, plan: Plan, on_progress: OnProgress) -> None:
    """Draws every block that is wanted and not stored yet; whatever ends it early, what was drawn is kept."""
    schedule: Schedule
    if plan.votes != HARD:
        schedule = SelectFirst(inputs=plan.total, n0=plan.n0, n=plan.n, num_classes=plan.num_classes)
    elif plan.sequential is None:
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


def _estimate_constants(
    file: RunFile, model: Any, dataset: Dataset, rows: Sequence[int], on_note: Callable[[str], object]
) -> None:
    """Searches the constant near each input that has none yet."""
    known = file.constants()
    missing = [position for position in range(len(rows)) if position not in known]
    for start in range(0, len(missing), AT_ONCE):
        chunk = missing[start : start + AT_ONCE]
        values = local_constants(model, [dataset[rows[position]].array for position in chunk])
        file.add_constants(dict(zip(chunk, values, strict=True)))
        on_note(f"searched the steepest gradients near {start + len(chunk)} of {len(missing)} inputs")


def _recompute_one(file: RunFile, executor: AnyExecutor, plan: Plan) -> None:
    """Draws a stored block again, the most divided one: a model that changed in any way is likeliest to differ there.

    Weights do not tell everything: a callable has none, and the code of a module may change around them.
    """
    stored = min(file.votes(), key=lambda v: (v.last - v.first, _agreement(v)), default=None)
    if stored is not None and _changed(executor, [stored]):
        raise InputError(
            f"{file.path} has other votes for its input number {stored.position} than this model casts now: the "
            f"model, its code or the machine's arithmetic has changed, so start a new run with another --out."
        )


def _check_determinism(file: RunFile, executor: AnyExecutor, plan: Plan) -> None:
    """Draws a share of the stored rows again, and the most divided ones; one that differs voids the run.

    Until this ends well the file certifies nothing, so that whatever stops it leaves no doubtful certificate.
    """
    file.reject(UNCHECKED)
    divided = heapq.nsmallest(MOST_DIVIDED, file.votes(), key=_agreement)
    share = min(REDRAWN, MOST_REDRAWN / sum(v.draws for v in file.votes()))
    generator = np.random.default_rng(abs(plan.seed))
    others = (v for v in file.votes() if generator.random() < share)
    rows = {(v.position, v.phase, v.first): v for v in (*divided, *others)}
    changed = _changed(executor, list(rows.values()))
    if changed:
        file.reject(
            f"its model is not deterministic (input number {changed[0].position}, drawn again, got other votes), so "
            f"switch off what is random in it (dropout, racing kernels) and start a new run with another --out."
        )
        raise RunError(f"{file.path} certifies nothing: {file.rejected}")
    file.reject(None)


def _agreement(votes: Votes) -> float:
    """The share of the votes that the first class has."""
    return float(votes.counts.max() / votes.draws)


def _changed(executor: AnyExecutor, rows: Sequence[Votes]) -> list[Votes]:
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
    candidate = votes.soft.candidate if votes.soft else NO_CANDIDATE
    draws = votes.first * BLOCK + votes.draws
    return blocks_of(votes.position, votes.phase, draws, start=votes.first, candidate=candidate)


class _Inputs:
    """The input at each position of the run, written to the file when first met and checked when met again."""

    def __init__(
        self, file: RunFile, dataset: Dataset, rows: Sequence[int], num_classes: int, noise: Noise, images: bool
    ) -> None:
        self.file, self.dataset, self.rows, self.num_classes = file, dataset, rows, num_classes
        self.noise, self.images = noise, images
        self.digests = {position: digest for position, _, _, digest in file.inputs()}

    def __call__(self, position: int) -> Input:
        example = self.dataset[self.rows[position]]
        if not 0 <= example.label < self.num_classes:
            raise InputError(
                f"input {example.id} has label {example.label}, but the model has {self.num_classes} classes: check "
                f"the labels or --classes."
            )
        self.noise.check(example.array, example.id)
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
