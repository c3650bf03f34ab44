"""The attack on the smoothed classifier (Salman et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.attacks.ascent import Bounds, ascend
from smoothcert.attacks.gradients import device_of, differentiable, require_module
from smoothcert.attacks.smallest import Attack, smallest
from smoothcert.attacks.targets import check_ascent, check_eps, check_targets
from smoothcert.classifier import SmoothedClassifier


def smoothed_pgd(
    smoothed: SmoothedClassifier,
    xs: Sequence[Any],
    labels: ArrayLike,
    eps: ArrayLike,
    *,
    draws: int = 16,
    steps: int = 20,
    step: float | None = None,
    n: int = 1_000,
    alpha: float = 0.001,
    bounds: Bounds = None,
    batch: int = 256,
) -> Attack:
    """The smallest l2 perturbation found at which the smoothed classifier does not return an input's label.

    For every ε it ascends −log of the mean probability of the label over `draws` draws of noise a step
    (`attacks.ascent`); the steps are 2ε / `steps` long unless given. Whether the class has changed is judged by
    `smoothed.predict` with n draws at level α, on noise of its own; an abstention counts as lost, as in the accuracies
    of Cohen et al. (2019) and Salman et al. `bounds=(0, 1)` keeps x + δ in that box.
    """
    module, radii = require_module(smoothed.model), check_eps(eps)
    check_ascent(steps, step, draws, batch)
    targets = check_targets(module, xs, labels, bounds)

    def judge(points: NDArray[np.float32]) -> NDArray[np.int64]:
        return np.array(smoothed.predict_batch(list(points), n=n, alpha=alpha))

    with differentiable(module) as scores:
        points = ascend(
            scores,
            [source for source in targets.inputs for _ in radii],
            targets.labels.repeat(len(radii)),
            np.tile(radii, len(targets.x)),
            steps=steps,
            step=step,
            device=device_of(module),
            sigma=smoothed.sigma,
            levels=smoothed.noise.levels,
            draws=draws,
            bounds=bounds,
            seed=smoothed.seed,
            batch=batch,
        )
    return smallest(targets.x, targets.labels, radii, points, judge)
