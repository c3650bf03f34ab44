"""The attack on the smoothed classifier (Salman et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.attacks.ascent import Ascent, Bounds, ascend
from smoothcert.attacks.gradients import differentiable, require_gradients
from smoothcert.attacks.smallest import Attack, smallest
from smoothcert.attacks.targets import check_eps, check_targets
from smoothcert.classifier import SmoothedClassifier
from smoothcert.modules import device_of


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
    `smoothed.predict`, by the classifier's own votes, with n draws at level α, on noise of its own; an abstention
    counts as lost, as in the accuracies of Cohen et al. (2019) and Salman et al. `bounds=(0, 1)` keeps x + δ in that
    box.
    """
    module, radii = require_gradients(smoothed.model), check_eps(eps)
    ascent = Ascent(steps, step, draws, bounds=bounds, seed=smoothed.seed, batch=batch)
    targets = check_targets(module, xs, labels, bounds)

    def judge(points: NDArray[np.float32]) -> NDArray[np.int64]:
        return np.array(smoothed.predict_batch(list(points), alpha=alpha, max_n=n))

    with differentiable(module) as scores:
        points = ascend(scores, *targets.in_each(radii), ascent, device_of(module), smoothed.classifier)
    return smallest(targets.x, targets.labels, radii, points, judge)
