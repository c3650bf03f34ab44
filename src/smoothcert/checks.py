"""Arguments are checked once, where they come in; each refusal is one sentence that says what to do."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InputError

NOISES = ("gaussian", "grid")
NO_NOISE = "none"
MOST_DRAWS = (1 << 31) - 1
"""Of one input: their counts fit into 32 bits."""

LEAST_LEVEL, LEAST_ALPHA = 1e-130, 1e-100
"""From 1e-150 down bounds of the incomplete beta function are too large by any factor."""


def check_alpha(alpha: ArrayLike) -> NDArray[np.float64]:
    """Levels strictly between 0 and 1, and not so low that SciPy's functions lose their digits."""
    try:
        levels = np.asarray(alpha, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        levels = np.array(np.nan)
    if not np.all((levels > 0) & (levels < 1)):
        raise InputError(f"alpha must lie strictly between 0 and 1, got {alpha!r}: 0.001 is the usual choice.")
    if not np.all(levels >= LEAST_LEVEL):
        raise InputError(f"a level below {LEAST_LEVEL:g} cannot be computed with: ask for a larger alpha.")
    return levels


def check_level(alpha: Any) -> float:
    """The level that is asked for: one number, of which a portion may be as little as `check_alpha` takes."""
    if not isinstance(alpha, int | float | np.number):
        raise InputError(f"alpha must be one number, got {alpha!r}: 0.001 is the usual choice.")
    level = float(check_alpha(alpha))
    if level < LEAST_ALPHA:
        raise InputError(f"alpha must be at least {LEAST_ALPHA:g}, got {alpha!r}: 0.001 is the usual choice.")
    return level


def less_error(alpha: float, error: float) -> float:
    """α − error, rounded down: a bound at this level, on noise that far from the exact one, errs with risk α.

    Without noise both are 0.
    """
    if not (alpha > error or alpha == error == 0):
        raise InputError(
            f"alpha = {alpha:g} is not above {error:.2g}, the error of drawing this much noise: take a larger alpha or "
            f"fewer draws."
        )
    return alpha if error == 0 else math.nextafter(alpha - error, 0.0)


def check_number(name: str, value: Any) -> float:
    """A number, of whatever size."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise InputError(f"{name} must be a number, got {value!r}.")
    return _as_float(name, value)


def check_sigma(sigma: Any) -> float:
    """A positive, finite noise level."""
    return check_positive("sigma", sigma, "it is the noise in units of the input")


def check_positive(name: str, value: Any, why: str) -> float:
    """A positive, finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < math.inf:
        raise InputError(f"{name} must be a positive number, got {value!r}: {why}.")
    return _as_float(name, value)


def _as_float(name: str, value: Any) -> float:
    """As `float`, but for whole numbers that it cannot hold."""
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"{name} must be at most {sys.float_info.max:.2g}, got a larger number.") from None


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """A whole number of at least `least`, and at most `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    if most is not None and value > most:
        raise InputError(f"{name} must be at most {most}, got {value!r}.")
    return int(value)


def check_seed(seed: Any) -> int:
    """Any whole number."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise InputError(f"seed must be a whole number, got {seed!r}.")
    return int(seed)


def check_batch(batch: Any) -> int | str:
    """A number of rows, or "auto"."""
    if batch != "auto" and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise InputError(f"batch must be a positive whole number or 'auto', got {batch!r}.")
    checked: int | str = batch
    return checked


def check_noise(name: Any, levels: Any) -> None:
    """The name of a kind of noise, and the steps of its grid where it has one."""
    if not isinstance(name, str) or name not in NOISES:
        raise InputError(f"unknown noise {name!r}: choose one of {', '.join(NOISES)}.")
    if levels is not None:
        check_whole("levels", levels, 1)
        if name == "gaussian":
            raise InputError("`levels` says nothing with gaussian noise: leave it out.")


def check_counts(counts: ArrayLike | Sequence[ArrayLike], name: str) -> NDArray[np.int64]:
    """Vote counts (m, c) with at least two classes and at least one vote a row."""
    array = check_tally(counts, name)
    if (array.sum(axis=1) == 0).any():
        raise InputError(f"{name} counts of an input are all zero: draw at least one sample.")
    return array


def check_tally(counts: ArrayLike | Sequence[ArrayLike], name: str) -> NDArray[np.int64]:
    """Whole numbers (m, c) from 0 on, for at least two classes."""
    try:
        array = np.asarray(counts)
    except ValueError:
        raise InputError(f"{name} counts have rows of different length: each needs one number per class.") from None
    if array.ndim != 2 or array.shape[1] < 2:
        raise InputError(f"{name} counts must have one number per class, at least two, got shape {array.shape}.")
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} counts must be integers, got {array.dtype}: pass votes, not shares.")
    if (array < 0).any():
        raise InputError(f"{name} counts must not be negative: pass the votes of each class.")
    if (array > MOST_DRAWS).any():
        raise InputError(f"{name} counts must be at most {MOST_DRAWS}: pass the votes of each class.")
    return array.astype(np.int64)
