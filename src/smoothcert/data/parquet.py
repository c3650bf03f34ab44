"""Parquet: images as Hugging Face stores them, or arrays of numbers."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import OrderedDict
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.dataset import Dataset, file_fingerprint
from smoothcert.data.images import Preprocessing, decode
from smoothcert.errors import InputError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    raise InputError("parquet files need pyarrow: pip install 'smoothcert[parquet]'.") from None

_INPUT_NAMES = ("img", "image", "x")
_LABEL_NAMES = ("label", "labels", "fine_label", "y")
_CACHE_BYTES = 1 << 28
_GROUP_BYTES, _GROUP_ROWS, _BATCH_ROWS = 1 << 31, 1 << 20, 128


class ParquetData(Dataset):
    """A column `img` or `image` of {bytes, path}, or one of (nested) lists of numbers; and one of labels.

    Row groups are read when a row of them is asked for, and as many are kept as fit into 256 MB.
    """

    def __init__(self, path: Path, preprocessing: Preprocessing, labelled: bool = True) -> None:
        self.description = f"the parquet file {path}"
        self._path, self._labelled = path, labelled
        try:
            self._file = pq.ParquetFile(path)
            schema = self._file.schema_arrow
        except Exception as error:  # on damaged bytes pyarrow raises whatever it stumbled on
            raise self._unreadable() from error
        self._label = next((name for name in _LABEL_NAMES if name in schema.names), None) if labelled else None
        if len(set(schema.names)) < len(schema.names):
            raise InputError(f"The parquet file {path} has two columns of one name: rename one of them.")
        encoded = [f.name for f in schema if _holds_bytes(f.type)]
        arrays = [f.name for f in schema if _numbers(f.type) is not None]
        self._input = _named(encoded, _INPUT_NAMES) or _named(arrays, _INPUT_NAMES)
        if self._input is None or (labelled and self._label is None):
            raise InputError(
                f"The parquet file {path} has the columns {', '.join(schema.names)}: it needs one of images "
                "(structs with bytes, named img or image) or lists of numbers, and labels, named label."
            )
        self._images = self._input in encoded
        if self._images:
            self.preprocessing = str(preprocessing)
        self._preprocess = preprocessing
        self._field = schema.field(self._input)
        self.classes = None if self._label is None else _class_names(schema.metadata, self._label)
        sizes = [self._file.metadata.row_group(g).num_rows for g in range(self._file.num_row_groups)]
        self._starts: list[int] = [0, *accumulate(sizes)]
        self._groups: OrderedDict[int, Any] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the file itself."""
        return ParquetData, (self._path, self._preprocess, self._labelled)

    @property
    def runs(self) -> list[range]:
        """The row groups."""
        return [range(start, stop) for start, stop in pairwise(self._starts)]

    def forget(self) -> None:
        """Keeps no row group any longer."""
        self._groups.clear()

    def __len__(self) -> int:
        return self._starts[-1]

    def stored(self, row: int) -> tuple[NDArray[Any], Any]:
        number = bisect_right(self._starts, row) - 1
        group, offset = self._group(number), row - self._starts[number]
        value, label = group[self._input][offset], 0 if self._label is None else group[self._label][offset].as_py()
        if not self._images:
            return self._array(value, row), label
        encoded = (value.as_py() or {}).get("bytes") or b""
        return decode(encoded, f"in row {row} of {self._path}", self._preprocess), label

    def _group(self, number: int) -> Any:
        if number not in self._groups:
            group = self._read(number)
            while self._groups and group.nbytes + sum(g.nbytes for g in self._groups.values()) > _CACHE_BYTES:
                self._groups.popitem(last=False)
            self._groups[number] = group
        self._groups.move_to_end(number)
        return self._groups[number]

    def _read(self, number: int) -> Any:
        """A row group, a few rows at a time: a small file may stand for endless repetitions of a value."""
        try:
            # Not the sizes of its columns: on damaged ones pyarrow ends the process.
            self._require_small(self._file.metadata.row_group(number).total_byte_size)
            if self._starts[number + 1] - self._starts[number] > _GROUP_ROWS:
                raise InputError(
                    f"The parquet file {self._path} has a row group of more than {_GROUP_ROWS:,} rows: write it with "
                    f"smaller ones."
                )
            batches, size = [], 0
            columns = [column for column in (self._input, self._label) if column is not None]
            for batch in self._file.iter_batches(_BATCH_ROWS, [number], columns):
                batches.append(batch)
                size += batch.nbytes
                self._require_small(size)
            group = pa.Table.from_batches(batches)
        except InputError:
            raise
        except Exception as error:  # on damaged bytes a decoder raises whatever it stumbled on
            raise self._unreadable() from error
        if len(group) != self._starts[number + 1] - self._starts[number]:
            raise self._unreadable()
        return group

    def _require_small(self, size: int) -> None:
        if size > _GROUP_BYTES:
            raise InputError(f"The parquet file {self._path} has a row group above 2 GB: write it with smaller ones.")

    def _array(self, value: Any, row: int) -> NDArray[Any]:
        kind, metadata = self._field.type, self._field.metadata or {}
        tensor = isinstance(kind, pa.FixedShapeTensorType)
        try:
            array = np.array((value.value if tensor else value).as_py(), dtype=_numbers(kind))
            if tensor:
                return array.reshape(kind.shape).transpose(kind.permutation or range(len(kind.shape)))
            return array.reshape(json.loads(metadata[b"shape"])) if b"shape" in metadata else array
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"Row {row} of {self.description} has no full array in {self._input!r}: give all one shape."
            ) from error

    @cached_property
    def fingerprint(self) -> str:
        return file_fingerprint(self._path)

    def _unreadable(self) -> InputError:
        return InputError(f"The parquet file {self._path} cannot be read, it may be cut off: copy it again.")


def _named(columns: list[str], preferred: tuple[str, ...]) -> str | None:
    """The column with a preferred name, else the only one."""
    for name in preferred:
        if name in columns:
            return name
    return columns[0] if len(columns) == 1 else None


def _holds_bytes(kind: Any) -> bool:
    """Is it a struct with binary `bytes`? Text is none, which Pillow would take for the name of a file."""
    if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
        return False
    held = kind.field("bytes").type
    return bool(pa.types.is_binary(held) or pa.types.is_large_binary(held) or pa.types.is_fixed_size_binary(held))


def _numbers(kind: Any) -> Any:
    """The NumPy type of the numbers in a column of (nested) lists; None for other columns."""
    depth = 0
    if isinstance(kind, pa.FixedShapeTensorType):
        return kind.value_type.to_pandas_dtype()
    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind, depth = kind.value_type, depth + 1
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return kind.to_pandas_dtype() if depth and is_number else None


def _class_names(metadata: dict[bytes, bytes] | None, label: str) -> tuple[str, ...] | None:
    """The names of a Hugging Face `ClassLabel` column."""
    try:
        names = json.loads((metadata or {})[b"huggingface"])["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None
