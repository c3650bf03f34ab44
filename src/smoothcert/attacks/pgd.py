"""Projected gradient descent on the base classifier (Madry et al., 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from smoothcert.attacks.ascent import Ascent, Bounds, ascend
from smoothcert.attacks.gradients import differentiable, require_gradients
from smoothcert.attacks.smallest import Attack, smallest
from smoothcert.attacks.targets import check_eps, check_targets
from smoothcert.modules import device_of


def pgd(
    model: torch.nn.Module,
    xs: Sequence[Any],
    labels: ArrayLike,
    eps: ArrayLike,
    *,
    steps: int = 40,
    step: float | None = 0.2,
    random_start: bool = True,
    bounds: Bounds = None,
    seed: int = 0,
    batch: int = 256,
) -> Attack:
    """The smallest l2 perturbation found that makes the model give each input another class than its label.

    For every ε an ascent of the cross entropy, projected to the ball of that radius, from a random point of it; then
    a bisection of the segment from the input to the nearest point of another class. The steps are those of the paper:
    40 of length 0.2; `step=None` makes them 2ε / `steps` long. `bounds=(0, 1)` keeps x + δ in that box.

    >>> attack = pgd(torch.nn.Linear(2, 2), [[0.0, 0.0]], [0], eps=[0.5, 5.0])
    >>> attack.success.shape
    (1, 2)
    """
    module, radii = require_gradients(model), check_eps(eps)
    ascent = Ascent(steps, step, 1, random_start, bounds, seed, batch)
    targets, device = check_targets(module, xs, labels, bounds), device_of(module)
    with differentiable(module) as scores:

        def judge(points: NDArray[np.float32]) -> NDArray[np.int64]:
            pieces = (points[i : i + batch] for i in range(0, len(points), batch))
            return np.concatenate([scores(torch.from_numpy(p).to(device)).argmax(1).cpu().numpy() for p in pieces])

        points = ascend(scores, *targets.in_each(radii), ascent, device)
        return smallest(targets.x, targets.labels, radii, points, judge)
