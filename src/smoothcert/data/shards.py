"""Several parquet files: the shards of a data set that is too large for one."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from smoothcert.data.dataset import Dataset
from smoothcert.data.images import Preprocessing
from smoothcert.data.parquet import ParquetData
from smoothcert.errors import InputError

_OPEN = 16


class ParquetShards(Dataset):
    """The rows of all files, in this order; row groups are kept of the 16 files that were read last."""

    def __init__(
        self, files: Sequence[Path], description: str, preprocessing: Preprocessing, labelled: bool = True
    ) -> None:
        self.description, self._files = description, files
        self._parts = [ParquetData(path, preprocessing, labelled) for path in self._files]
        self.classes, self.preprocessing = self._parts[0].classes, self._parts[0].preprocessing
        for path, part in zip(self._files, self._parts, strict=True):
            if part.classes != self.classes:
                raise InputError(f"{path} has other classes than {self._files[0]}: give the shards of one data set.")
        self._starts: list[int] = [0, *accumulate(map(len, self._parts))]
        self._read: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return self._starts[-1]

    def stored(self, row: int) -> tuple[NDArray[Any], Any]:
        number = bisect_right(self._starts, row) - 1
        self._read[number] = None
        self._read.move_to_end(number)
        if len(self._read) > _OPEN:
            self._parts[self._read.popitem(last=False)[0]].forget()
        return self._parts[number].stored(row - self._starts[number])

    @property
    def runs(self) -> list[range]:
        """The row groups of all files."""
        return [
            range(start + run.start, start + run.stop)
            for start, part in zip(self._starts, self._parts, strict=False)
            for run in part.runs
        ]

    @cached_property
    def fingerprint(self) -> str:
        """Over each file's name, size and rows: reading all of ImageNet would take minutes."""
        lines = [f"{p.name}\0{p.stat().st_size}\0{len(d)}\n" for p, d in zip(self._files, self._parts, strict=True)]
        return hashlib.sha256("".join(lines).encode()).hexdigest()
