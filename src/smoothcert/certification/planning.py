"""Before the first draw: what is to be certified, on which machine, and whether a file was started with just that."""

from __future__ import annotations

import dataclasses
import logging
import platform
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.checks import less_error
from smoothcert.data import Dataset
from smoothcert.errors import InputError, RunError
from smoothcert.lipschitz.constant import NEEDS_LAYERS, check_source, steepness
from smoothcert.lipschitz.exact import exact_copy
from smoothcert.modules import Model, batch_statistics, require_module
from smoothcert.options import AUTO
from smoothcert.plan import Classifier, Plan, Question, Setting, differences
from smoothcert.plan.draws import NoDraws
from smoothcert.plan.question import LOCAL, PRODUCT
from smoothcert.plan.slopes import Kept, kept
from smoothcert.sampling.blocks import Input
from smoothcert.sampling.choice import ThisProcess, choose_engine
from smoothcert.sampling.engines import INT8, Engines, name_of
from smoothcert.sampling.engines.agreement import count_differences
from smoothcert.sampling.executor import Job
from smoothcert.sampling.identity import Identity
from smoothcert.sampling.machine import Machine
from smoothcert.sampling.noise import Noise, open_noise
from smoothcert.scale.workers import Workers
from smoothcert.store.opening import damaged
from smoothcert.store.schema import Info

logger = logging.getLogger(__name__)
VERIFIED_INPUTS, VERIFIED_DRAWS = 10, 10_000
SHARD_BATCH = 200
SAME = 1 - 1e-9
"""As near as two machines come to one constant."""


def noise_of(classifier: Classifier) -> Noise:
    """The noise that the classifier adds."""
    return open_noise(classifier.noise, classifier.sigma, classifier.levels)


def job_of(classifier: Classifier, setting: Setting) -> Job:
    """What the nouns ask of whatever draws."""
    device = setting.machine.device
    noise = open_noise(classifier.noise, classifier.sigma, classifier.levels, setting.stream, device)
    return Job(noise, classifier.num_classes, setting.known_seed, setting.rows, classifier.votes)


def open_machine(
    engines: Engines, classifier: Classifier, setting: Setting, x: NDArray[np.float32], draws: int, exact: bool
) -> Machine:
    """What draws so many times at inputs like x: workers where a cluster is given, else an engine here, which "auto"
    chooses among those that compute in float32 where it has to be `exact`."""
    engine = setting.engine if isinstance(setting.engine, str) else name_of(setting.engine)
    if setting.cluster is not None:
        return Workers(setting.cluster, engines.model, engine, setting.batch, x, engines.open().fingerprint)
    return choose_engine(engines, engine, setting.batch, x, sigma=classifier.sigma, draws=draws, exact=exact)


def resumed(asked: Plan, earlier: Plan | None, fresh: int) -> Setting:
    """The setting; what it leaves open is that of the file that is gone on with, and so is the version of the noise. A
    new run is drawn from a fresh seed.

    Shards are drawn by one engine, too, in batches of one size, which no machine chooses, and from one seed: they are
    parts of one run.
    """
    setting, shard = asked.setting, asked.selection.shard
    if shard is not None and setting.seed is None:
        raise InputError("shards are drawn from one seed to give the votes of one run: pass `seed`.")
    if shard is not None and setting.engine == INT8:
        raise InputError(
            f"each shard would make a network of its own for engine {INT8}: give all of them the .onnx file beside a "
            f"run with that engine as the model."
        )
    engine, batch, seed = setting.engine, setting.batch, setting.seed
    stream = setting.stream if earlier is None else earlier.setting.stream
    if earlier is not None and isinstance(earlier.setting.engine, Identity):
        engine = name_of(earlier.setting.engine) if engine == AUTO else engine
        batch = earlier.setting.batch if batch == AUTO else batch
        seed = earlier.setting.seed if seed is None else seed
    elif shard is not None:
        engine = "torch" if engine == AUTO else engine
        batch = SHARD_BATCH if batch == AUTO else batch
    seed = fresh if seed is None else seed
    return dataclasses.replace(setting, engine=engine, batch=batch, seed=seed, stream=stream)


def settle(asked: Plan, machine: Machine) -> Plan:
    """The plan with all that is known once the machine is."""
    setting = asked.setting.settled(machine.identity, machine.batch, asked.setting.known_seed)
    return dataclasses.replace(asked, setting=setting)


def noise_error(classifier: Classifier, question: Question, size: int) -> float:
    """The error of all the noise that is drawn to prove the radius around an input of so many values; an α that it eats
    up is refused."""
    error = noise_of(classifier).error(question.draws.most * size)
    less_error(question.alpha, error)
    return error


def constants_of(question: Question, model: Model, x: NDArray[np.float32]) -> tuple[float | None, Kept]:
    """The ℓ2 constant of the scores, where one is given or proved, and those of their differences, where proved."""
    known = question.lipschitz
    check_source(known, model)
    if known == PRODUCT:
        bare = isinstance(question.draws, NoDraws)
        proved = steepness(exact_copy(require_module(model, NEEDS_LAYERS), x.shape) if bare else model, x.shape)
        return proved.scores, kept(proved.pairs)
    return (None if known is None or known == LOCAL else float(known)), ()


def is_coarse(engine: Identity) -> bool:
    """Does the engine compute in a coarser type than float32?"""
    return not {*engine.precision.split("+")} <= {"float32", "float64", ""}


def require_precision(question: Question, engine: Identity) -> None:
    """Refuses a Lipschitz constant of a network that the engine computes in a coarser type than float32."""
    if question.lipschitz is not None and is_coarse(engine):
        raise InputError(
            f"engine {engine.engine} computes in {engine.precision}, whose steps no Lipschitz constant bounds: use an "
            f"engine and weights in float32, or no Lipschitz constant."
        )


def verify(engines: Engines, machine: Machine, xs: Sequence[NDArray[np.float32]], sigma: float) -> None:
    """Says how often the engine's labels differ from those of eager PyTorch."""
    require_module(
        engines.model, "`verify_engine` compares with eager PyTorch, which runs torch modules only: leave it out."
    )
    if not isinstance(machine, ThisProcess):
        raise InputError("`verify_engine` runs the model in this process: leave out the cluster.")
    differ = count_differences(
        machine.engine, engines.open(), xs, sigma=sigma, batch=machine.batch, draws=VERIFIED_DRAWS
    )
    shown = f"{differ} of {VERIFIED_DRAWS:,}"
    logger.info("%s: %s labels differ from those of eager PyTorch", machine.identity, shown)


def require_separate_rows(model: Model, machine: Machine, source: Input, job: Job) -> None:
    """Refuses a model that gives itself away before the first draw: one whose rows see each other, or a random one."""
    found = machine.fault(source, job)
    if found is None:
        return
    norm = batch_statistics(model) if isinstance(model, torch.nn.Module) else None
    why = f", for its batch norm {norm!r} has no running statistics" if norm is not None else ""
    raise InputError(
        f"the model {found}{why}: a certificate is about one input, so make its answer to a row depend on nothing but "
        f"that row."
    )


def count_classes(engines: Engines, dataset: Dataset) -> int:
    """How many classes the model scores, or the data set names where the model returns labels."""
    output = _output(engines, dataset.shape)
    if output.ndim == 2:
        return int(output.shape[1])
    if dataset.classes is None:
        raise InputError("the model returns labels and the data set names no classes: pass `num_classes`.")
    return len(dataset.classes)


def returns_scores(engines: Engines, shape: tuple[int, ...]) -> bool:
    """Does the model return scores for inputs of this shape, or labels?"""
    return _output(engines, shape).ndim == 2


def _output(engines: Engines, shape: tuple[int, ...]) -> torch.Tensor:
    """What the model returns for two inputs of this shape, all zeros."""
    engine = engines.open()
    with engine.ready():
        try:
            return engine(torch.zeros(2, *shape, device=engine.device))
        except (InputError, RunError):
            raise
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(
                f"the model does not take an input of shape {shape} ({reason}): check the model and the "
                f"preprocessing of the data."
            ) from error


WORDS = {
    "model": "another model (its weights, its code or the values it holds differ)",
    "data": "another data set (its files differ)",
}


def refuse_another(stored: Plan, plan: Plan, path: Path) -> None:
    """A run goes on only under the plan it declared."""
    for name, before, now in differences(stored, plan):
        if name in ("n", "n0"):
            raise InputError(
                f"{path} declared {name} = {before}, not {now}: changing it after looking at the votes would void the "
                f"level alpha, so start a new run with another `out`."
            )
        what = WORDS.get(name, f"{name} = {before}, not {now}")
        raise InputError(f"{path} was started with {what}: use the same settings, or another `out` for a new run.")


def as_stored(stored: Plan, plan: Plan, path: Path) -> Plan:
    """An equal plan with the constants that the file has, which bound those that were just found; larger ones do."""
    if (stored.constant is None) != (plan.constant is None) or stored.noise_error < plan.noise_error:
        raise RunError(damaged(path, "a damaged plan"))
    if plan.constant is not None and stored.constant is not None:
        bounded = stored.constant >= SAME * plan.constant and (stored.known_pairs >= SAME * plan.known_pairs).all()
        if not bounded:
            raise RunError(
                f"{path} has Lipschitz constants below those that are proved of the model: start a new run with "
                f"another `out`."
            )
    return dataclasses.replace(plan, constant=stored.constant, pairs=stored.pairs, noise_error=stored.noise_error)


def info_of(model: Any, name: str | None, dataset: Dataset) -> Info:
    """What a reader wants to know of how the run was started."""
    packages = ("smoothcert", "numpy", "scipy", "torch")
    program = Path(sys.argv[0]).name.replace("__main__.py", "smoothcert")
    return Info(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=shlex.join([program, *sys.argv[1:]]),
        model=name or type(model).__name__,
        data=dataset.description,
        classes=dataset.classes,
        versions={"python": platform.python_version(), **{name: version(name) for name in packages}},
    )
