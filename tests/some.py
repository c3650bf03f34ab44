"""A part of what is tried is enough for the quick suite."""

import pytest


def some(values, every=2):
    """Parameters: the first of each so many for the quick suite, the others for the slow one."""
    return [pytest.param(v, marks=[pytest.mark.slow] * (i % every > 0)) for i, v in enumerate(values)]
