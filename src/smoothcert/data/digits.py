"""scikit-learn's handwritten digits: 1 797 grey images of 8×8 pixels with 17 levels."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.dataset import Dataset
from smoothcert.errors import InputError

_HELD_OUT = 300


def digits(train: bool) -> Dataset:
    """The 1 497 digits for training, or the 300 held out: one fixed split."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise InputError("The digits come with scikit-learn: pip install 'smoothcert[demo]'.") from error
    images, labels = load_digits(return_X_y=True)
    # RandomState, because NumPy keeps its stream the same in all versions.
    order = np.random.RandomState(0).permutation(len(labels))
    rows = order[_HELD_OUT:] if train else order[:_HELD_OUT]
    return _Digits(images[rows].reshape(-1, 1, 8, 8) / 16, labels[rows], "training" if train else "held-out")


class _Digits(Dataset):
    classes = tuple("0123456789")
    levels = 16

    def __init__(self, images: NDArray[np.float64], labels: NDArray[Any], part: str) -> None:
        self._images = images.astype(np.float32)
        self._labels = labels
        self.description = f"the {part} digits"

    def __len__(self) -> int:
        return len(self._images)

    def stored(self, row: int) -> tuple[NDArray[np.float32], int]:
        return self._images[row], self._labels[row]

    @cached_property
    def fingerprint(self) -> str:
        content = self._images.tobytes() + self._labels.astype(np.int64).tobytes()
        return hashlib.sha256(content).hexdigest()
