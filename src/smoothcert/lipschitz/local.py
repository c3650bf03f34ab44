"""Local Lipschitz constants by gradient ascent on the gradient norm (after Yang et al., 2020): lower estimates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.errors import InputError
from smoothcert.lipschitz.product import require_evaluation
from smoothcert.modules import no_exit

Output = Literal["logits", "class", "margin"]


@no_exit()
def local(
    module: nn.Module,
    x: Tensor,
    radius: float = 0.15,
    *,
    of: Output = "logits",
    classes: Tensor | None = None,
    sigma: float = 0.0,
    draws: int = 128,
    restarts: int = 4,
    steps: int = 20,
    batch_size: int = 512,
    seed: int = 0,
) -> Tensor:
    """A lower estimate of the Lipschitz constant in the ball B(x, radius), one value for each input of the batch x.

    `of="logits"`: the ℓ2 → ℓ2 constant of all scores; `"class"`: of one score; `"margin"`: of one score minus the
    largest other. `classes` says which score, and is the largest one at x unless given. With `sigma > 0` it is the
    constant of the smoothed network `E f(x + σδ)`, by `draws` draws of noise.

    The ascent starts at x and at `restarts` random points of the ball. What it finds is the norm of a gradient at a
    point of the ball: the constant is not below it and may be far above, so it is no basis for a proof. For the
    smoothed network that holds on average: one half of the draws chooses the point and the direction, the other half
    gives the slope.

    >>> local(nn.Linear(3, 2), torch.zeros(5, 3), of="class").shape
    torch.Size([5])
    """
    climbing = _Climb(radius, of, restarts, steps)
    if not 0 <= sigma < math.inf or draws < 2:
        raise InputError("sigma must be finite and must not be negative, and draws at least 2.")
    _check_inputs(module, x, of, classes)
    generator = torch.Generator().manual_seed(seed)
    noise = sigma * torch.randn(2, draws // 2 if sigma > 0 else 1, *x.shape[1:], generator=generator)
    climb, judge = (_Smoothed(module, half, of == "logits") for half in noise.to(x))
    at_once = max(1, batch_size // ((1 + restarts) * noise.shape[1]))
    values = [torch.zeros(0, dtype=torch.float64)]
    for i in range(0, len(x), at_once):
        centres = x[i : i + at_once].detach()
        with torch.no_grad():
            scores = climb.scores(centres)
        labels = scores.argmax(1) if classes is None else classes[i : i + at_once].to(scores.device)
        best = _ascend(climb, centres, scores, labels, climbing, generator)
        judged = judge.slope(best.point, best.direction)
        slope = (judged.gradient.double() * _unit(best.gradient).double()).flatten(1).sum(1)
        values.append(slope.clamp_min(0).cpu())
    return torch.cat(values)


class _Slope(NamedTuple):
    """At some points: a direction in the space of scores, the gradient along it, its norm, and `J ∇/‖∇‖`."""

    point: Tensor
    direction: Tensor
    gradient: Tensor
    norm: Tensor
    turn: Tensor


@dataclass(frozen=True)
class _Smoothed:
    """The mean of a network's scores over draws of noise, the same draws at every point."""

    module: nn.Module
    noise: Tensor
    turns: bool

    def scores(self, x: Tensor) -> Tensor:
        noisy = (x[:, None] + self.noise).flatten(0, 1)
        mean: Tensor = self.module(noisy).unflatten(0, (len(x), len(self.noise))).mean(1)
        return mean

    def slope(self, point: Tensor, aim: Tensor | Callable[[Tensor], Tensor]) -> _Slope:
        """The gradient of `⟨u, scores⟩`, u a direction or what `aim` makes of the scores."""
        with torch.enable_grad():
            x = point.detach().requires_grad_()
            scores = self.scores(x)
            direction = (aim if isinstance(aim, Tensor) else aim(scores.detach())).detach().requires_grad_()
            (gradient,) = torch.autograd.grad(scores, x, direction, create_graph=self.turns)
        turn = torch.zeros_like(direction)
        if self.turns:  # the gradient J'u is linear in u: its derivative along v is Jv
            (turn,) = torch.autograd.grad(gradient, direction, _unit(gradient.detach()))
        gradient = gradient.detach()
        return _Slope(point, direction.detach(), gradient, _norms(gradient), turn)

    def turned(self, slope: _Slope) -> _Slope:
        """The slopes at the same points after a few power iterations on the Jacobian, each steeper than the last."""
        for _ in range(5 if self.turns else 0):
            slope = self.slope(slope.point, _unit(slope.turn, slope.direction))
        return slope


@dataclass(frozen=True)
class _Climb:
    """Where and how the steepest slope is searched."""

    radius: float
    of: Output
    restarts: int
    steps: int

    def __post_init__(self) -> None:
        if self.of not in ("logits", "class", "margin"):
            raise InputError(f'of must be "logits", "class" or "margin", not {self.of!r}.')
        if not 0 <= self.radius < math.inf:
            raise InputError("radius must be finite and must not be negative.")
        if self.restarts < 0 or self.steps < 0:
            raise InputError("restarts and steps must be at least 0.")


def _ascend(
    smoothed: _Smoothed, x: Tensor, scores: Tensor, labels: Tensor, how: _Climb, generator: torch.Generator
) -> _Slope:
    """The steepest slope found in each ball.

    The gradient of `‖∇φ‖` is `Hv`, v the unit vector along ∇φ: here a difference of two gradients, which also sees
    the kinks of a piecewise linear network. For the logits power iteration on the Jacobian turns the direction.
    """
    radius, of, steps, starts = how.radius, how.of, how.steps, 1 + how.restarts
    centre, labels = x.repeat_interleave(starts, 0), labels.repeat_interleave(starts)
    chosen = functional.one_hot(labels, scores.shape[1]).to(scores)

    def random(like: Tensor) -> Tensor:
        return _unit(torch.randn(like.shape, generator=generator).to(like))

    def inside(point: Tensor) -> Tensor:
        offset = point - centre
        return centre + offset * _columns((radius / _norms(offset).clamp_min(1e-300)).clamp_max(1), offset)

    def aim(now: Tensor) -> Tensor:
        if of == "logits":
            return direction
        rival = now.masked_fill(chosen.bool(), -math.inf).argmax(1)
        return chosen if of == "class" else chosen - functional.one_hot(rival, now.shape[1]).to(now)

    direction = random(chosen)
    away = radius * torch.rand(len(centre), generator=generator).to(centre.device)
    away[::starts] = 0
    start = inside(centre + _columns(away, centre) * random(centre))
    best = here = smoothed.turned(smoothed.slope(start, aim))
    for step in range(steps):
        ahead = smoothed.slope(inside(here.point + radius / 4 * _unit(here.gradient)), aim)
        uphill = _unit(ahead.gradient - here.gradient, random(centre))
        direction = _unit(here.turn, direction)
        here = smoothed.slope(inside(here.point + radius * (1 - step / steps) * uphill), aim)
        for new in (ahead, here):
            steeper = new.norm > best.norm
            best = _Slope(*(torch.where(_columns(steeper, a), a, b) for a, b in zip(new, best, strict=True)))
    first = torch.arange(0, len(centre), starts, device=best.norm.device)
    steepest = first + best.norm.reshape(-1, starts).argmax(1)
    return smoothed.turned(_Slope(*(part[steepest] for part in best)))


def _norms(x: Tensor) -> Tensor:
    """ℓ2 norms of a batch in float64: those of float32 underflow below 1e-23."""
    norms: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=1, dtype=torch.float64)
    return norms


def _unit(x: Tensor, otherwise: Tensor | None = None) -> Tensor:
    """Each of a batch divided by its norm; zero stays zero, or becomes what stands in for it."""
    norms = _norms(x)
    scaled = (x.double() / _columns(norms.clamp_min(1e-300), x.double())).to(x.dtype)
    return scaled if otherwise is None else torch.where(_columns(norms > 0, x), scaled, otherwise)


def _columns(values: Tensor, like: Tensor) -> Tensor:
    """One value for each of a batch, shaped to multiply or mask it."""
    shaped = values.reshape(-1, *(1 for _ in like.shape[1:]))
    return shaped if shaped.dtype == torch.bool else shaped.to(like)


def _check_inputs(module: nn.Module, x: Tensor, of: str, classes: Tensor | None) -> None:
    if not (x.is_floating_point() and x.ndim >= 2 and x.isfinite().all()):
        raise InputError("x must be a batch of finite inputs, a floating-point tensor whose first axis counts them.")
    require_evaluation(module)
    try:
        with torch.no_grad():
            scores = module(x[:1])
    except Exception as error:  # whatever the network raises on a wrong shape
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise InputError(f"inputs of shape {tuple(x.shape[1:])} do not fit the module ({reason}).") from error
    if not (isinstance(scores, Tensor) and scores.ndim == 2):
        raise InputError("the module must return one vector of scores for each input.")
    if of == "margin" and scores.shape[1] < 2:
        raise InputError("a margin needs at least two scores.")
    if classes is not None and not (
        classes.shape == x.shape[:1] and bool(((classes >= 0) & (classes < scores.shape[1])).all())
    ):
        raise InputError(f"classes must give one class below {scores.shape[1]} for each input.")
