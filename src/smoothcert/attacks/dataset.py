"""An attack on a data set, some inputs at a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from smoothcert.attacks.pgd import pgd
from smoothcert.attacks.smallest import Attack
from smoothcert.attacks.smoothed import smoothed_pgd
from smoothcert.classifier import SmoothedClassifier
from smoothcert.data import as_dataset
from smoothcert.plan import Selection
from smoothcert.records import flat

CHUNK = 50


@dataclass(frozen=True)
class DatasetAttack(Attack):
    """What was found for each input of a data set, and with which settings."""

    ids: list[str]
    labels: list[int]
    settings: dict[str, Any]


def attack_dataset(
    attacked: torch.nn.Module | SmoothedClassifier,
    data: Any,
    eps: ArrayLike,
    *,
    skip: int = 1,
    limit: int | None = None,
    on_progress: Callable[[int, float], None] = lambda draws, done: None,
    **options: Any,
) -> DatasetAttack:
    """`smoothed_pgd` of a smoothed classifier, or `pgd` of a model, with these options of theirs.

    Every `skip`-th input of `data` is attacked, at most `limit`, each to lose its label.
    """
    dataset = as_dataset(data)
    rows = Selection(skip=skip, limit=limit).rows(dataset)
    method: Callable[..., Attack] = smoothed_pgd if isinstance(attacked, SmoothedClassifier) else pgd
    settings = _settings(method, attacked, options)
    passes = np.size(eps) * (settings["steps"] * settings.get("draws", 1) + settings.get("n", 0))
    ids, labels, found = [], [], []
    for first in range(0, len(rows), CHUNK):
        chunk = [dataset[row] for row in rows[first : first + CHUNK]]
        ids += [e.id for e in chunk]
        labels += [e.label for e in chunk]
        found.append(method(attacked, [e.array for e in chunk], [e.label for e in chunk], eps, **options))
        on_progress(len(ids) * passes, len(ids) / len(rows))
    norms, deltas = (np.concatenate([getattr(part, name) for part in found]) for name in ("norms", "deltas"))
    return DatasetAttack(found[0].eps, norms, deltas, ids, labels, {"eps": np.ravel(eps).tolist(), **settings})


def _settings(method: Callable[..., Attack], attacked: Any, options: dict[str, Any]) -> dict[str, Any]:
    """All that the attack depends on: its options, those that are not given too, and which classifier it is about."""
    usual = {p.name: p.default for p in inspect.signature(method).parameters.values() if p.kind is p.KEYWORD_ONLY}
    about: dict[str, Any] = {"sigma": None}
    if isinstance(attacked, SmoothedClassifier):
        about = {name: value for name, value in flat(attacked.classifier).items() if name != "model"}
        about["seed"] = attacked.seed
    return {**about, **usual, **options}
