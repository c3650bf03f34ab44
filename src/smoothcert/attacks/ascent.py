"""Projected gradient ascent in l2 balls (Madry et al., 2018), under noise where there is some (Salman et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.attacks.gradients import Scores
from smoothcert.checks import check_positive, check_seed, check_whole
from smoothcert.plan import Classifier
from smoothcert.sampling.blocks import Input, Phase, noise_key
from smoothcert.sampling.noise.first import NormalStream

Bounds = tuple[float, float] | None
INSIDE = 1 - 2.0**-18
"""The share of the radius that is used: what float32 rounds does not leave the ball."""


@dataclass(frozen=True)
class Ascent:
    """So many steps of this length, 2ε / `steps` unless given, each along a gradient over `draws` draws of noise.

    From a random point of the ball or from the input, in the box `bounds` where there is one. The noise and the random
    start of an input depend on `seed` and its id alone. A forward pass has at most `batch` rows, or the `draws` of one
    input.
    """

    steps: int
    step: float | None = None
    draws: int = 1
    random_start: bool = False
    bounds: Bounds = None
    seed: int = 0
    batch: int = 256

    def __post_init__(self) -> None:
        check_whole("steps", self.steps, 1)
        check_whole("draws", self.draws, 1)
        check_whole("batch", self.batch, 1)
        check_seed(self.seed)
        if self.step is not None:
            check_positive("step", self.step, "it is a length in units of the input")


def ascend(
    scores: Scores,
    inputs: Sequence[Input],
    labels: NDArray[np.int64],
    eps: NDArray[np.float64],
    ascent: Ascent,
    device: torch.device,
    classifier: Classifier | None = None,
) -> NDArray[np.float32]:
    """The points x + δ, ‖δ‖₂ ≤ ε, one for each input with its own ε and label y, after the steps

        δ ← Π(δ + step · ∇J/‖∇J‖₂),    J(δ) = −log 1/m Σᵢ softmax_y (f(x + δ + ηᵢ) / T),    ηᵢ ~ N(0, σ² I),

    with Π the projection on the ball, and σ and T, the temperature of soft votes and 1 without, those of the smoothed
    `classifier`. Without one there is no noise, and J is the cross entropy. Each step draws its own noise, so that the
    ascent cannot fit itself to one sample. On a grid the model gets multiples of its step, and gradients pass through
    the rounding as if it were not there.
    """
    at_once, steps, bounds = max(1, ascent.batch // ascent.draws), ascent.steps, ascent.bounds
    found = []
    for first in range(0, len(inputs), at_once):
        rows = slice(first, first + at_once)
        x = torch.from_numpy(np.stack([source.array for source in inputs[rows]])).to(device)
        streams = [NormalStream(noise_key(ascent.seed, i.id, Phase.ATTACK, 0), device) for i in inputs[rows]]
        radius = _columns(torch.from_numpy(eps[rows].astype(np.float32)).to(device), x)
        y = torch.from_numpy(labels[rows]).to(device)
        length = 2 * radius / steps if ascent.step is None else ascent.step
        point = _project(x + radius * _uniform_in_ball(streams, x), x, radius, bounds) if ascent.random_start else x
        for _ in range(steps):
            noise = torch.zeros_like(x[:, None])
            if classifier is not None:
                noise = classifier.sigma * _normals(streams, (ascent.draws, *x.shape[1:]), device)
            point = _project(point + length * _unit(_gradient(scores, point, noise, y, classifier)), x, radius, bounds)
        found.append(point.cpu().numpy())
    return np.concatenate(found)


def _gradient(scores: Scores, point: Tensor, noise: Tensor, y: Tensor, classifier: Classifier | None) -> Tensor:
    """∇J for each row, straight through the rounding to a grid; noise has shape (rows, m, *shape)."""
    levels = None if classifier is None else classifier.levels
    temperature = 1.0 if classifier is None else getattr(classifier.votes, "temperature", 1.0)
    with torch.enable_grad():
        here = point.detach().requires_grad_()
        noisy = (here[:, None] + noise).flatten(0, 1)
        if levels is not None:
            noisy = noisy + ((noisy * levels).round() / levels - noisy).detach()
        log_softmax = (scores(noisy) / temperature).log_softmax(1).reshape(*noise.shape[:2], -1)
        of_label = log_softmax.gather(2, y[:, None, None].expand(-1, noise.shape[1], 1))[..., 0]
        loss = log(noise.shape[1]) - of_label.logsumexp(1)
        (gradient,) = torch.autograd.grad(loss.sum(), here)
    return gradient


def _project(point: Tensor, x: Tensor, radius: Tensor, bounds: Bounds) -> Tensor:
    """The nearest point of the ball, then of the box where there is one; x lies in the box, so the ball is kept."""
    offset = point - x
    inside = x + offset * (INSIDE * radius / _norms(offset).clamp_min(1e-30)).clamp_max(1)
    return inside if bounds is None else inside.clamp(*bounds)


def _unit(gradient: Tensor) -> Tensor:
    """Each row divided by its norm, by its largest entry first: squares of small gradients vanish in float32."""
    scaled = gradient / _columns(gradient.flatten(1).abs().amax(1), gradient).clamp_min(1e-37)
    return scaled / _norms(scaled).clamp_min(1e-12)


def _uniform_in_ball(streams: Sequence[NormalStream], x: Tensor) -> Tensor:
    """Uniform in the unit ball: the first d coordinates of a uniform point on the sphere in d + 2 dimensions."""
    d = prod(x.shape[1:])
    normals = _normals(streams, (d + 2,), x.device)
    return (normals / _norms(normals))[:, :d].reshape(x.shape)


def _normals(streams: Sequence[NormalStream], shape: tuple[int, ...], device: torch.device) -> Tensor:
    """The next values of each row's stream."""
    out = torch.empty((len(streams), *shape), dtype=torch.float32, device=device)
    for stream, row in zip(streams, out, strict=True):
        stream.fill(row)
    return out


def _norms(x: Tensor) -> Tensor:
    return _columns(torch.linalg.vector_norm(x.flatten(1), dim=1), x)


def _columns(values: Tensor, like: Tensor) -> Tensor:
    """One value for each row, shaped to multiply it."""
    return values.reshape(-1, *(1 for _ in like.shape[1:]))
