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
_AT_ONCE = 1_000
LARGEST_NAMES = 1 << 16  # bytes


class Cifar10Binary(Dataset):
    """One batch file, of which a row is read when it is asked for; `batches.meta.txt` beside it names the classes."""

    def __init__(self, path: Path) -> None:
        self.description = f"the CIFAR-10 file {path}"
        self._path = path
        size = path.stat().st_size
        if size == 0 or size % _RECORD:
            raise InputError(
                f"The file {path} has {size} bytes, no multiple of CIFAR-10's {_RECORD} bytes an image: "
                "copy it again from cifar-10-binary.tar.gz."
            )
        self._rows = size // _RECORD
        if max(map(self._largest_label, range(0, self._rows, _AT_ONCE))) > 9:
            raise InputError(f"The file {path} holds labels above 9, so it is not the binary version of CIFAR-10.")
        with suppress(OSError):  # no plain file of this size is that of CIFAR-10
            names = read_plain(path.with_name("batches.meta.txt"), LARGEST_NAMES)
            self.classes = tuple(names.decode(errors="replace").split())

    def __len__(self) -> int:
        return self._rows

    def stored(self, row: int) -> tuple[NDArray[np.uint8], int]:
        (record,) = self._records(row, 1)
        return record[1:].reshape(3, 32, 32), int(record[0])

    def _largest_label(self, first: int) -> int:
        return int(self._records(first, min(_AT_ONCE, self._rows - first))[:, 0].max())

    def _records(self, first: int, count: int) -> NDArray[np.uint8]:
        """Rows, read and not mapped: a mapped file that is cut off meanwhile ends the process."""
        try:
            with self._path.open("rb") as file:
                file.seek(first * _RECORD)
                content = file.read(count * _RECORD)
        except OSError as error:
            raise InputError(f"The file {self._path} cannot be read ({error.strerror}): copy it again.") from None
        if len(content) < count * _RECORD:
            raise InputError(f"The file {self._path} was cut off while it was read: copy it again.")
        return np.frombuffer(content, dtype=np.uint8).reshape(count, _RECORD)

    @cached_property
    def fingerprint(self) -> str:
        return file_fingerprint(self._path)
