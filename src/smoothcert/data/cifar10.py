"""The binary version of CIFAR-10 (Krizhevsky, 2009): a label byte and 3·32·32 pixel bytes an image."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.dataset import Dataset, file_fingerprint
from smoothcert.errors import InputError
from smoothcert.files import read_plain

TEST_FILE = "test_batch.bin"
_RECORD = 1 + 3 * 32 * 32
LARGEST_NAMES = 1 << 16  # bytes


class Cifar10Binary(Dataset):
    """One batch file, mapped rather than read; `batches.meta.txt` beside it names the classes."""

    def __init__(self, path: Path) -> None:
        self.description = f"the CIFAR-10 file {path}"
        self._path = path
        size = path.stat().st_size
        if size == 0 or size % _RECORD:
            raise InputError(
                f"The file {path} has {size} bytes, no multiple of CIFAR-10's {_RECORD} bytes an image: "
                "copy it again from cifar-10-binary.tar.gz."
            )
        self._records = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, _RECORD)
        if self._records[:, 0].max() > 9:
            raise InputError(f"The file {path} holds labels above 9, so it is not the binary version of CIFAR-10.")
        with suppress(OSError):  # no plain file of this size is that of CIFAR-10
            names = read_plain(path.with_name("batches.meta.txt"), LARGEST_NAMES)
            self.classes = tuple(names.decode(errors="replace").split())

    def __len__(self) -> int:
        return len(self._records)

    def stored(self, row: int) -> tuple[NDArray[np.uint8], int]:
        record = self._records[row]
        return record[1:].reshape(3, 32, 32), int(record[0])

    @cached_property
    def fingerprint(self) -> str:
        return file_fingerprint(self._path)
