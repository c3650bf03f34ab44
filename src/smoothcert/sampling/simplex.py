"""Maps τ from scores to shares of a vote: points of the simplex."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from smoothcert.bounds.soft import MOST_DRAWS, UNIT
from smoothcert.errors import InputError

HARD = "hard"


def hardmax(scores: torch.Tensor) -> torch.Tensor:
    """The whole vote for the largest score, the first of equal ones."""
    return torch.zeros_like(scores).scatter_(1, scores.argmax(dim=1, keepdim=True), 1.0)


def softmax(scores: torch.Tensor) -> torch.Tensor:
    """`e^{z_k} / Σ_j e^{z_j}`."""
    return scores.softmax(dim=1)


def sparsemax(scores: torch.Tensor) -> torch.Tensor:
    """The point of the simplex nearest to the scores (Martins and Astudillo, 2016): `max(z − θ, 0)` that sums to 1."""
    ordered = scores.sort(dim=1, descending=True).values
    excess = (ordered.cumsum(dim=1) - 1) / torch.arange(1, scores.shape[1] + 1, device=scores.device)
    support = (ordered > excess).sum(dim=1, keepdim=True)
    return (scores - excess.gather(1, support - 1)).clamp_min(0.0)


MAPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": softmax,
    "sparsemax": sparsemax,
    "hardmax": hardmax,
}
VOTES = (HARD, *MAPS)


def check_votes(votes: str, temperature: float, *, n0: int, n: int, adaptive: bool) -> None:
    """A kind of votes, a temperature, and draws that go with it."""
    if votes not in VOTES:
        raise InputError(f"unknown votes {votes!r}: choose one of {', '.join(VOTES)}.")
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not 0 < temperature < math.inf:
        raise InputError(f"temperature must be a positive number, got {temperature!r}: scores are divided by it.")
    if votes == HARD:
        return
    if adaptive:
        raise InputError("soft votes need a fixed number of draws: leave out radii and width, or use hard votes.")
    if not (2 <= n <= MOST_DRAWS and n0 <= MOST_DRAWS):
        raise InputError(f"soft votes need from 2 to {MOST_DRAWS:,} draws, got n0 = {n0} and n = {n}.")


def component_constant(votes: str, temperature: float, num_classes: int) -> float:
    """The largest ℓ2 constant of one component of τ(z / T) in z: √2/4 / T for softmax, √(1 − 1/c) / T for sparsemax.

    Softmax: `∇p_k = p_k (e_k − p)`, and `‖e_k − p‖² = (1 − p_k)² + Σ_{j≠k} p_j² ≤ 2 (1 − p_k)²`, so that
    `‖∇p_k‖ ≤ √2 p_k (1 − p_k) ≤ √2/4`. Sparsemax is continuous and piecewise linear; where s scores are in its support
    its Jacobian there is `I − 11ᵀ/s`, whose rows have norm `√((1 − 1/s)² + (s − 1)/s²) = √(1 − 1/s)`, the largest for
    s = c. Hard votes jump.
    """
    if votes == "softmax":
        return math.sqrt(2) / 4 / temperature
    return math.sqrt(1 - 1 / num_classes) / temperature if votes == "sparsemax" else math.inf


def shares(votes: str, temperature: float, scores: torch.Tensor) -> torch.Tensor:
    """τ(scores / T) in whole multiples of 1/UNIT, (N, c) int64."""
    return (MAPS[votes](scores.double() / temperature) * UNIT).round().long()
