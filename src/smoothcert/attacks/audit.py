"""The safety net: no attack may succeed inside a proved radius."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from smoothcert.attacks.ascent import Ascent, ascend
from smoothcert.attacks.dataset import CHUNK
from smoothcert.attacks.gradients import differentiable, require_gradients
from smoothcert.attacks.smallest import distances
from smoothcert.attacks.targets import check_targets
from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.certification.fingerprint import fingerprint_of
from smoothcert.certification.quantising import find_network
from smoothcert.checks import check_whole
from smoothcert.classifier import SmoothedClassifier
from smoothcert.data import as_dataset
from smoothcert.errors import InputError
from smoothcert.lipschitz_classifier import LipschitzClassifier
from smoothcert.modules import device_of
from smoothcert.plan import Plan
from smoothcert.sampling.blocks import Input, input_digest
from smoothcert.sampling.engines import Engines, name_of
from smoothcert.store.run import Run
from smoothcert.store.schema import InputRecord


@dataclass(frozen=True)
class Violation:
    """`predict` returned `found` at x + `delta`, ‖delta‖₂ = `norm` < `radius`, where `certified` was claimed."""

    id: str
    certified: int
    found: int
    radius: float
    norm: float
    delta: NDArray[np.float64]


@dataclass(frozen=True)
class Search:
    """What a search inside the certified radii of so many inputs found, each judged once at level `alpha`."""

    searched: int
    violations: list[Violation]
    alpha: float

    @property
    def false_alarms(self) -> float:
        """At most how many violations to expect though every certificate is true."""
        return self.searched * self.alpha


def search_balls(
    classifier: SmoothedClassifier | LipschitzClassifier,
    xs: Sequence[Any],
    classes: ArrayLike,
    radii: ArrayLike,
    *,
    draws: int = 16,
    steps: int = 20,
    n: int = 1_000,
    alpha: float = 0.001,
    batch: int = 256,
) -> Search:
    """Ascends −log of the mean probability of the certified class inside each radius, and judges where it ends.

    A violation is another class, not an abstention, from `classifier.predict`, by its own votes, with n draws at level
    α, at a point whose distance from x is below the radius in float64. Its noise is that of no run: it is named by the
    values of x + δ. A true certificate is called broken with probability at most α; a classifier without noise is asked
    once, and α is 0.
    """
    module = require_gradients(classifier.model)
    if isinstance(classifier, LipschitzClassifier):
        alpha, draws, seed, predict = 0.0, 1, 0, classifier.predict_batch
    else:
        seed, predict = classifier.seed, partial(classifier.predict_batch, alpha=alpha, max_n=n)
    ascent = Ascent(steps, draws=draws, seed=seed, batch=batch)
    targets, limits = check_targets(module, xs, classes, None), np.asarray(radii, dtype=np.float64)
    if limits.shape != (len(targets.x),) or not np.all((limits > 0) & np.isfinite(limits)):
        raise InputError("radii must be one positive number for each input: leave out those that abstained.")
    with differentiable(module) as scores:
        points = ascend(
            scores, targets.inputs, targets.labels, limits, ascent, device_of(module), classifier.classifier
        )
    norms = distances(points, targets.x)
    found = np.array(predict(list(points)))
    broken = (found != targets.labels) & (found != ABSTAIN) & (norms < limits)
    return Search(
        len(points),
        [
            Violation(
                targets.inputs[i].id,
                int(targets.labels[i]),
                int(found[i]),
                float(limits[i]),
                float(norms[i]),
                points[i].astype(np.float64) - targets.x[i],
            )
            for i in np.flatnonzero(broken)
        ],
        alpha,
    )


def search_run(
    model: torch.nn.Module,
    data: Any,
    run: Run,
    *,
    limit: int | None = None,
    draws: int = 16,
    steps: int = 20,
    n: int = 1_000,
    alpha: float = 0.001,
    seed: int = 0,
    batch: int = 256,
    on_progress: Callable[[int, float], None] = lambda draws, done: None,
) -> Search:
    """`search_balls` in every certified radius of a run, at most `limit` of them.

    It is the classifier of the run that is searched, with its own noise and votes, on its engine. The model and the
    data must be those of the run, by their fingerprints.
    """
    limit = None if limit is None else check_whole("limit", limit, 1)
    plan, dataset = run.plan, as_dataset(data)
    engines = Engines(require_gradients(model))
    if fingerprint_of(model, dataset.shape, plan.classifier.model) != plan.classifier.model:
        raise InputError(f"{run.path} is a run of another model (its weights or its code differ): pass that one.")
    if (dataset.fingerprint, dataset.preprocessing) != (plan.selection.data, plan.selection.preprocessing):
        raise InputError(f"{run.path} is a run on other data (files, `resize` or `crop` differ): pass the same.")
    certified = [(r, c) for r, c in zip(run.inputs, run.certificates(), strict=True) if not c.abstained][:limit]
    find_network(run.path, plan, engines)
    attacked = _attacked(engines, plan, dataset.shape, seed)
    violations: list[Violation] = []
    for start in range(0, len(certified), CHUNK):
        chunk = certified[start : start + CHUNK]
        violations += search_balls(
            attacked,
            [_unchanged(run, record, dataset[int(record.id)].array) for record, _ in chunk],
            [c.prediction for _, c in chunk],
            [c.radius for _, c in chunk],
            draws=draws,
            steps=steps,
            n=n,
            alpha=alpha,
            batch=batch,
        ).violations
        done = start + len(chunk)
        on_progress(done * (draws * steps + n), done / len(certified))
    return Search(len(certified), violations, 0.0 if plan.classifier.is_bare else alpha)


def _attacked(
    engines: Engines, plan: Plan, shape: tuple[int, ...], seed: int
) -> SmoothedClassifier | LipschitzClassifier:
    """The classifier of the run."""
    if plan.classifier.is_bare:
        return LipschitzClassifier(engines, input_shape=shape, num_classes=plan.classifier.num_classes)
    smoothing = {name: value for name, value in vars(plan.classifier).items() if name != "model"}
    engine, rows = name_of(plan.setting.machine), plan.setting.rows
    return SmoothedClassifier(engines, **smoothing, engine=engine, batch=rows, seed=seed)


def _unchanged(run: Run, record: InputRecord, array: NDArray[np.float32]) -> Input:
    """The input that a certificate speaks of."""
    if record.digest not in (None, input_digest(array)):
        raise InputError(f"input {record.id} is not the one that {run.path} certifies: the data changed.")
    return Input(record.id, array)
