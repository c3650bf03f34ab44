"""Maps τ from scores to shares of a vote: points of the simplex."""

from __future__ import annotations

from collections.abc import Callable

import torch

from smoothcert.sampling.blocks import UNIT


def hardmax(scores: torch.Tensor) -> torch.Tensor:
    """The whole vote for the largest score, the first of equal ones."""
    return torch.zeros_like(scores).scatter_(1, scores.argmax(dim=1, keepdim=True), 1.0)


def softmax(scores: torch.Tensor) -> torch.Tensor:
    """`e^{z_k} / Σ_j e^{z_j}`."""
    return scores.softmax(dim=1)


def sparsemax(scores: torch.Tensor) -> torch.Tensor:
    """The point of the simplex nearest to the scores (Martins and Astudillo, 2016): `max(z − θ, 0)` that sums to 1.

    What is 1 below the largest score has no share; nearer ones differ from it by numbers that can be added up exactly
    enough, whatever the scores are.
    """
    scores = (scores - scores.max(dim=1, keepdim=True).values).clamp_min(-1.0)
    ordered = scores.sort(dim=1, descending=True).values
    excess = (ordered.cumsum(dim=1) - 1) / torch.arange(1, scores.shape[1] + 1, device=scores.device)
    support = (ordered > excess).sum(dim=1, keepdim=True)
    return (scores - excess.gather(1, support - 1)).clamp_min(0.0)


MAPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": softmax,
    "sparsemax": sparsemax,
    "hardmax": hardmax,
}


def shares(name: str, temperature: float, scores: torch.Tensor) -> torch.Tensor:
    """τ(scores / T) in whole multiples of 1/UNIT, (N, c) int64."""
    return (MAPS[name](scores.double() / temperature) * UNIT).round().long()
