"""Small classes put together, the risk divided by the number of groups (CPM, Delattre et al., 2025, Algorithm 1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds.binomial import lower_quantile, upper_quantile
from smoothcert.bounds.method import Counts, MarginBound
from smoothcert.checks import check_counts


def partition_classes(selection: ArrayLike) -> list[list[int]]:
    """The buckets [I₁], [I₂], single classes moved out of the meta-class, and the meta-class M last.

    While M holds more selection votes than I₂, its largest class moves out. Ties go to the lowest class id; an
    empty meta-class is no bucket.

    >>> partition_classes([60, 20, 9, 8, 3])
    [[0], [1], [2, 3, 4]]
    >>> partition_classes([40, 20, 20, 15, 5])
    [[0], [1], [2], [3, 4]]
    """
    (votes,) = check_counts([selection], "selection")
    singles = _singles(votes)
    meta = np.delete(np.arange(len(votes)), singles).tolist()
    buckets: list[list[int]] = [[k] for k in singles.tolist()]
    return [*buckets, meta] if meta else buckets


def _singles(votes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The classes that are a bucket each, most votes first. Those without votes are not sorted: a file of a few
    kilobytes may have millions."""
    (voted,) = votes.nonzero()
    if len(voted) < 2:
        voted = np.union1d(voted, np.flatnonzero(votes[:3] == 0)[: 2 - len(voted)])
    order = voted[np.argsort(-votes[voted], kind="stable")]
    left = votes[voted].sum() - votes[order].cumsum()
    return order[: 2 + int(np.argmax(left[1:] <= votes[order[1]]))]


def cpm(selections: Counts, estimations: Counts, alpha: float) -> MarginBound:
    """`t = Φ⁻¹(L₁) − Φ⁻¹(max_B U_B)` over the buckets B, every Clopper-Pearson bound at α/c*.

    c* is the number of buckets including I₁; U grows with the count, so the fullest bucket decides.
    """
    n, num_classes = estimations.sum(axis=1), estimations.shape[1]
    votes = [row[_singles(chosen)] for chosen, row in zip(selections, estimations, strict=True)]
    n1 = np.array([v[0] for v in votes])
    fullest = np.array([max(v[1:].max(), total - v.sum()) for v, total in zip(votes, n, strict=True)])
    num_buckets = np.array([len(v) + (len(v) < num_classes) for v in votes])
    level = alpha / num_buckets
    return MarginBound(lower_quantile(n1, n, level) - upper_quantile(fullest, n, level), num_buckets)
