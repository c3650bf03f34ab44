"""A classifier that workers import: it is slow, raises or dies where the input tells it to."""

import os
import signal
import time

from interruptible import classify

RAISE, DIE = 1_000, 2_000


def moody(batch):
    if (batch > (RAISE + DIE) / 2).any():
        os.kill(os.getpid(), signal.SIGKILL)
    if (batch > RAISE / 2).any():
        raise ValueError("out of order")
    return classify(batch)


def unhurried(batch):
    time.sleep(0.02)
    return classify(batch)


def sociable(batch):
    """Rows that see each other."""
    return classify(batch - batch.mean(axis=0))
