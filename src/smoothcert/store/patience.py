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
    start, done, told = process_time(), 0, False
    while done < len(pairs):
        at_once = (os.cpu_count() or 1) if done else 1
        n1, nj, n = pairs[done : done + at_once].T
        pairwise_margin(n1, nj, n, level)
        done = min(done + at_once, len(pairs))
        spent = process_time() - start
        whole = math.ceil(spent * len(pairs) / done)
        if spent > min(SAMPLE, patience) and whole > patience:
            return whole
        if spent > SAMPLE and whole > PATIENCE and not told:
            logger.info("bounds by pairwise take about %d seconds of a processor", whole)
            told = True
    return None
