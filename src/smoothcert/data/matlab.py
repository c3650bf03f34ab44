"""Tables in MATLAB's files (its "Level 5 MAT-File Format"): numbers and text, unpacked no further than is allowed."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.files import read_plain

HEADER = 128
ORDERS = {b"IM": "<", b"MI": ">"}
MATRIX, COMPRESSED = 14, 15
STRUCT, TEXT, NUMBERS = 2, 4, range(6, 16)
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
TWO_BYTES = (4, 17)
MOST_UNPACKED = 1 << 24  # bytes
MOST_FIELDS = 100

Elements = Iterator[tuple[int, memoryview]]


def read_table(file: Path, name: str, most: int) -> Iterator[dict[str, Any]]:
    """The rows of the array of structures with this name, in a plain file of at most so many bytes: of each field the
    number or the text, None for what is neither. ValueError or struct.error tell that there is no such table.
    """
    data = memoryview(read_plain(file, most))
    order = ORDERS.get(bytes(data[HEADER - 2 : HEADER]))
    if order is None:
        raise ValueError("another format")
    for matrix in _matrices(data[HEADER:], order):
        parts = _elements(matrix, order)
        kind, called = _head(parts, order)
        if called == name.encode():
            if kind != STRUCT:
                raise ValueError("no structures")
            fields = _fields(parts, order)
            values = (_value(content, order) for _, content in parts)
            return (dict(zip(fields, row, strict=True)) for row in zip(*[values] * len(fields), strict=True))
    raise ValueError(f"no {name}")


def _elements(data: memoryview, order: str) -> Elements:
    """The type and the bytes of each; those of at most four bytes stand in the tag."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        start = at + 8
        if kind >> 16:
            kind, size, start = kind & 0xFFFF, min(kind >> 16, 4), at + 4
        if start + size > len(data):
            raise ValueError("cut off")
        yield kind, data[start : start + size]
        at = start + size + (0 if kind == COMPRESSED else -(start + size) % 8)


def _matrices(data: memoryview, order: str) -> Iterator[memoryview]:
    """The arrays of the file. What is compressed holds one, and is unpacked once."""
    left = MOST_UNPACKED
    for kind, content in _elements(data, order):
        if kind == COMPRESSED:
            unpacking = zlib.decompressobj()
            unpacked = unpacking.decompress(content, left)
            left -= len(unpacked)
            if not unpacking.eof or left <= 0:
                raise ValueError("cut off, or larger than allowed")
            kind, content = next(_elements(memoryview(unpacked), order), (kind, content))
        if kind != MATRIX:
            raise ValueError("no array")
        yield content


def _head(parts: Elements, order: str) -> tuple[int, bytes]:
    """What an array is of, and its name; the shape between them says nothing that its elements do not."""
    (_, flags), _, (_, name) = islice(parts, 3)
    return struct.unpack_from(f"{order}I", flags)[0] & 0xFF, bytes(name)


def _fields(parts: Elements, order: str) -> list[str]:
    (_, length), (_, names) = islice(parts, 2)
    (width,) = struct.unpack_from(f"{order}i", length)
    if not 0 < width <= len(names) <= MOST_FIELDS * width:
        raise ValueError("no fields, or too many")
    return [bytes(names[i : i + width]).partition(b"\0")[0].decode() for i in range(0, len(names), width)]


def _value(matrix: memoryview, order: str) -> float | str | None:
    if not matrix:
        return None
    parts = _elements(matrix, order)
    kind, _ = _head(parts, order)
    written, content = next(parts, (0, matrix))
    if kind == TEXT:
        return bytes(content).decode(f"utf-16-{'le' if order == '<' else 'be'}" if written in TWO_BYTES else "utf-8")
    if kind in NUMBERS and written in TYPES:
        numbers = np.frombuffer(content, dtype=order + TYPES[written])
        return float(numbers[0]) if numbers.size == 1 else None
    return None
