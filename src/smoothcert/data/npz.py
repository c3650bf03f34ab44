"""NumPy archives with an array of inputs and one of labels."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.dataset import Dataset, file_fingerprint
from smoothcert.errors import InputError

_KEYS = (("x", "y"), ("images", "labels"), ("data", "target"), ("x_test", "y_test"))
_EXPANSION, _HARMLESS = 100, 1 << 28


class NpzData(Dataset):
    """Arrays under x and y (or another usual pair of names), held in memory as they are stored."""

    def __init__(self, path: Path, labelled: bool = True) -> None:
        self.description = f"the archive {path}"
        self._path = path
        try:
            with ZipFile(path) as archive:
                entries = archive.infolist()
                if any(entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED) for entry in entries):
                    raise InputError(f"The archive {path} is packed otherwise than NumPy does: save it with np.savez.")
                unpacked = sum(entry.file_size for entry in entries)
                if unpacked > max(_HARMLESS, _EXPANSION * path.stat().st_size):
                    raise InputError(f"The archive {path} would unpack to {unpacked} bytes: save it uncompressed.")
                pairs = _KEYS if labelled else [pair[:1] for pair in _KEYS]
                held = {entry.filename for entry in entries}
                keys = next((pair for pair in pairs if {f"{key}.npy" for key in pair} <= held), ())
                arrays = [_array(archive, key) for key in keys]
        except InputError:
            raise
        except Exception as error:  # on damaged bytes zip and NumPy raise whatever they stumbled on
            raise InputError(
                f"The archive {path} cannot be read: it is cut off, no .npz, or holds Python objects, "
                "which are never loaded; save plain arrays of numbers."
            ) from error
        if not arrays:
            raise InputError(f"The archive {path} needs arrays named {' or '.join('/'.join(k) for k in pairs)}.")
        self._inputs, self._labels = (
            arrays if labelled else (*arrays, np.broadcast_to(np.int64(0), arrays[0].shape[:1]))
        )
        if 0 in self._inputs.shape[1:]:
            raise InputError(f"The archive {path} has inputs of shape {self._inputs.shape}, which are none: save some.")
        if self._inputs.ndim < 2 or self._labels.shape[:1] != self._inputs.shape[:1]:
            raise InputError(
                f"The archive {path} has inputs of shape {self._inputs.shape} and labels of shape "
                f"{self._labels.shape}: give one label for each input, along the first axis."
            )

    def __len__(self) -> int:
        return len(self._inputs)

    def stored(self, row: int) -> tuple[NDArray[Any], Any]:
        return self._inputs[row], self._labels[row]

    @cached_property
    def fingerprint(self) -> str:
        return file_fingerprint(self._path)


def _array(archive: ZipFile, key: str) -> NDArray[Any]:
    """Read piece by piece, up to what its header says: an entry may unpack to more than the archive says."""
    with archive.open(f"{key}.npy") as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return array
