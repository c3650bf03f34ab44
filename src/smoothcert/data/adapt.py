"""Whatever a caller of the Python API has, as a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smoothcert.data.dataset import Dataset
from smoothcert.data.registry import open_data


def as_dataset(data: Any) -> Dataset:
    """A data set stays itself, a path is opened."""
    if isinstance(data, Dataset):
        return data
    return open_data(str(data) if isinstance(data, Path) else data)
