"""The two kinds of files that torch.save writes."""

from __future__ import annotations

import struct
import sys
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from smoothcert.errors import InputError
from smoothcert.models.pickles import Storage, Strided, read_pickle

_ZIP = b"PK\3\4"
_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001


class TorchFile(ABC):
    """A file that torch.save wrote: its content, whose tensors are still in the file."""

    content: Any

    @abstractmethod
    def numbers(self, storages: Iterable[Storage]) -> Iterator[tuple[str, Tensor]]:
        """What lies in the storages, by their keys."""

    def tensors(self, state: dict[str, Strided]) -> dict[str, Tensor]:
        """Those of a state dict; what lies in storages that it does not use is not read."""
        held = dict(self.numbers({tensor.storage.key: tensor.storage for tensor in state.values()}.values()))
        return {name: tensor.of(held[tensor.storage.key]) for name, tensor in state.items()}


@contextmanager
def open_torch_file(path: Path) -> Iterator[TorchFile]:
    with path.open("rb") as file:
        packed = file.read(4) == _ZIP
        file.seek(0)
        if packed:
            _check_packing(path, file)
            with zipfile.ZipFile(file) as archive:
                yield _Zipped(path, archive)
        else:
            yield _Legacy(path, file)


class _Zipped(TorchFile):
    """From PyTorch 1.6 on: a zip file with one record for each storage."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        names = archive.namelist()
        self._path, self._archive = path, archive
        (self._folder,) = {name.partition("/")[0] for name in names}
        if f"{self._folder}/constants.pkl" in names:
            raise ValueError("it is TorchScript")
        if f"{self._folder}/byteorder" in names and self._record("byteorder") != sys.byteorder.encode():
            raise ValueError("it was saved on another kind of machine")
        content = self._record("data.pkl")
        self.content = read_pickle(BytesIO(content), len(content), {})

    def numbers(self, storages: Iterable[Storage]) -> Iterator[tuple[str, Tensor]]:
        for storage in storages:
            yield storage.key, _numbers(storage, self._record(f"data/{storage.key}"))

    def _record(self, name: str) -> bytes:
        entry = self._archive.getinfo(f"{self._folder}/{name}")
        if entry.compress_type != zipfile.ZIP_STORED:  # it may unpack to more than the list of contents says
            raise InputError(f"The weights file {self._path} is compressed: save it with torch.save, which does not.")
        return self._archive.read(entry)


class _Legacy(TorchFile):
    """Before PyTorch 1.6: five pickles, then the storages, each with its length."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._file, self._size, self._storages = file, path.stat().st_size, dict[str, Storage]()
        mark = self._pickle()
        if mark != _MAGIC:
            raise ValueError("it does not begin as torch.save begins")
        version, machine, self.content, self._keys = (self._pickle() for _ in range(4))
        if version != _VERSION or machine.get("little_endian") != (sys.byteorder == "little"):
            raise ValueError("it was saved on another kind of machine")
        self._start = file.tell()

    def _pickle(self) -> Any:
        return read_pickle(self._file, self._size, self._storages)

    def numbers(self, storages: Iterable[Storage]) -> Iterator[tuple[str, Tensor]]:
        wanted = {storage.key for storage in storages}
        if sum(self._storages[key].bytes for key in wanted) > self._size:
            raise ValueError("its numbers are not there")
        self._file.seek(self._start)
        for key in self._keys:
            storage = self._storages[key]
            (count,) = struct.unpack("<q", self._file.read(8))
            if count != storage.count:
                raise ValueError(f"storage {key[:20]!r} has another length")
            if key in wanted:
                yield key, _numbers(storage, self._file.read(storage.bytes))
            else:
                self._file.seek(storage.bytes, 1)


def _numbers(storage: Storage, content: bytes) -> Tensor:
    if len(content) != storage.bytes:
        raise ValueError(f"storage {storage.key[:20]!r} has another length")
    if not content:
        return torch.empty(0, dtype=storage.dtype)
    return torch.frombuffer(bytearray(content), dtype=storage.dtype)


def _check_packing(path: Path, file: BinaryIO) -> None:
    """torch.save compresses nothing; a file may be compressed a thousandfold.

    There must be one list of contents, at the very end, or two readers could see two.
    """
    size = path.stat().st_size
    file.seek(max(size - 98, 0))
    tail = file.read().rjust(98, b"\0")
    wide, locator, end = tail[:56], tail[56:76], tail[76:]
    stop, listed = size - 22, struct.unpack("<II", end[12:20])
    if locator[:4] == b"PK\6\7":
        stop, listed = size - 98, struct.unpack("<QQ", wide[40:56])
    plain = end[:4] == b"PK\5\6" and end[20:] == b"\0\0" and sum(listed) == stop
    if locator[:4] == b"PK\6\7":
        plain = plain and wide[:4] == b"PK\6\6" and struct.unpack("<Q", locator[8:16])[0] == stop
    if not plain:
        raise ValueError("its list of contents is not at its end")
    with zipfile.ZipFile(file) as packed:
        unpacked = sum(max(entry.file_size, entry.compress_size) for entry in packed.infolist())
    if unpacked > 2 * size + (1 << 20):
        raise InputError(f"The weights file {path} would unpack to {unpacked:,} bytes: save it with torch.save.")
