"""A user's own data set: a torch map-style dataset, or anything that is indexed like one."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.dataset import Dataset, raw_array
from smoothcert.errors import InputError

_PROBES = 16


class ObjectData(Dataset):
    """A thing with a length and items (array, tensor or Pillow image, label), or what returns it when called."""

    def __init__(self, items: Any, description: str, labelled: bool = True) -> None:
        self.description, self._labelled = description, labelled
        self._items = items
        if isinstance(items, type) or (callable(items) and not hasattr(items, "__getitem__")):
            self._items = self._call("calling it", items)
        if not (hasattr(self._items, "__len__") and hasattr(self._items, "__getitem__")):
            raise InputError(
                f"{description} is no map-style data set: it needs len() and items (array, label), or to return it."
            )
        row = self._first[0] if len(self) else None
        if row is not None and not np.array_equal(self.stored(row)[0], self.stored(row)[0], equal_nan=True):
            raise InputError(
                f"Row {row} of {self.description} differs each time it is read: take out the random transforms."
            )

    def __len__(self) -> int:
        return int(self._call("len()", len, self._items))

    def stored(self, row: int) -> tuple[NDArray[Any], Any]:
        item = self._call(f"row {row}", self._items.__getitem__, row)
        if not self._labelled:
            image = item[0] if isinstance(item, (tuple, list)) else item
            return self._call(f"row {row}", raw_array, image), 0
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise InputError(f"Row {row} of {self.description} is no pair: its items must be (array, label).")
        return self._call(f"row {row}", raw_array, item[0]), item[1]

    @cached_property
    def fingerprint(self) -> str:
        """Over the length and 16 rows spread over the data set: there is no file to hash."""
        digest = hashlib.sha256(f"{len(self)}".encode())
        for row in np.unique(np.linspace(0, len(self) - 1, _PROBES).astype(int)):
            try:
                example = self[int(row)]
            except InputError:
                digest.update(f"{row} is broken".encode())
                continue
            digest.update(f"{row} {example.label} {example.array.shape}".encode())
            digest.update(example.array.tobytes())
        return digest.hexdigest()

    def _call(self, what: str, function: Any, *arguments: Any) -> Any:
        """The user's code, whose failures are theirs to mend."""
        try:
            return function(*arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise InputError(
                f"In {self.description}, {what} failed with {type(error).__name__}: {error}; mend it there."
            ) from error
