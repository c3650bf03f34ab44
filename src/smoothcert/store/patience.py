"""How long bounds may take: those by `pairwise` of thousands of inputs take minutes, all others a moment."""

from __future__ import annotations

import logging
import math
import os
from time import process_time

import numpy as np

from smoothcert.bounds.method import Counts, split
from smoothcert.bounds.pairwise import pairwise_margin
from smoothcert.plan import Tally

logger = logging.getLogger(__name__)
PATIENCE = 10.0
"""Seconds of a processor that bounds may take unless more are allowed."""

SAMPLE = 1.0
"""Seconds after which the rest is estimated."""


def wait_for(tally: Tally, level: float, patience: float) -> int | None:
    """Bounds the pairs of all inputs, which are kept; None where that takes no longer than `patience` seconds.

    Else about how long it would take, by those that were bounded: some counts take fifty times as long as others.
    """
    pairs: Counts = np.unique(np.stack(split(tally.selections, tally.estimations), axis=1), axis=0)
    pairs = np.random.default_rng(0).permutation(pairs)
    start, at_once, told = process_time(), os.cpu_count() or 1, False
    for first in range(0, len(pairs), at_once):
        n1, nj, n = pairs[first : first + at_once].T
        pairwise_margin(n1, nj, n, level)
        spent = process_time() - start
        whole = math.ceil(spent * len(pairs) / min(first + at_once, len(pairs)))
        if spent > min(SAMPLE, patience) and whole > patience:
            return whole
        if spent > SAMPLE and whole > PATIENCE and not told:
            logger.info("bounds by pairwise take about %d seconds of a processor", whole)
            told = True
    return None
