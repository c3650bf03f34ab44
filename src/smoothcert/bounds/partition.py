"""Small classes put together, the risk divided by the number of groups (CPM, Delattre et al., 2025, Algorithm 1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

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
    order = np.argsort(-votes, kind="stable")
    singles = 2
    while votes[order[singles:]].sum() > votes[order[1]]:
        singles += 1
    buckets = [[int(k)] for k in order[:singles]]
    meta = sorted(int(k) for k in order[singles:])
    return [*buckets, meta] if meta else buckets


def cpm(selections: Counts, estimations: Counts, alpha: float) -> MarginBound:
    """`t = Φ⁻¹(L₁) − Φ⁻¹(max_B U_B)` over the buckets B, every Clopper-Pearson bound at α/c*.

    c* is the number of buckets including I₁; U grows with the count, so the fullest bucket decides.
    """
    partitions = [partition_classes(s) for s in selections]
    votes = [[row[bucket].sum() for bucket in buckets] for row, buckets in zip(estimations, partitions, strict=True)]
    n1 = np.array([v[0] for v in votes])
    fullest = np.array([max(v[1:]) for v in votes])
    n = estimations.sum(axis=1)
    num_buckets = np.array([len(v) for v in votes])
    level = alpha / num_buckets
    return MarginBound(lower_quantile(n1, n, level) - upper_quantile(fullest, n, level), num_buckets)
