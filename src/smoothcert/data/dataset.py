"""What every reader yields, and the checks that every row passes."""

from __future__ import annotations

import hashlib
import reprlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from smoothcert.errors import InputError

_TRIED = 100
"""Rows among which one has to be readable."""


@dataclass(frozen=True)
class Example:
    """One input: its row as a string, its float32 array (images: channels first, in [0, 1]) and its class."""

    id: str
    array: NDArray[np.float32]
    label: int


class Dataset(ABC):
    """Rows with random access; a row is read when it is asked for.

    A reader says how many rows there are and what is stored in each (`stored`); the conversion to float32 and
    the checks are here. All rows have the type and shape of the first that can be read.
    """

    description: str
    classes: tuple[str, ...] | None = None
    preprocessing: str = "none"

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def runs(self) -> list[range] | None:
        """Rows that are read together, where a single one cannot be read without the others."""
        return None

    @abstractmethod
    def stored(self, row: int) -> tuple[NDArray[Any], Any]:
        """The array and the label of a row as they are stored: uint8 (H, W, C) or (C, H, W), or floats."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of what the rows hold: another one means other data."""

    @cached_property
    def _first(self) -> tuple[int, np.dtype[Any], tuple[int, ...]]:
        """The first row that can be read, its type and its shape as an input."""
        problem: InputError | None = None
        for row in range(min(len(self), _TRIED)):
            try:
                raw, label = self.stored(row)
                array, _ = self._converted(row, raw, label)
                return row, raw.dtype, array.shape
            except InputError as error:
                problem = problem or error
        raise problem or InputError(f"There is nothing in {self.description}: give one with at least one row.")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of every input."""
        return self._first[2]

    @property
    def eight_bit(self) -> bool:
        """Whether every value is k/255 for a whole k."""
        return self._first[1] == np.uint8

    @property
    def levels(self) -> int | None:
        """The m for which every value is k/m for a whole k, where one is known."""
        return 255 if self.eight_bit else None

    def __getitem__(self, row: int) -> Example:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        raw, label = self.stored(row)
        array, number = self._converted(row, raw, label)
        try:
            self._check_like_first(raw.dtype, array)
        except InputError as error:
            raise InputError(f"Row {row} of {self.description} {error}") from error
        return Example(str(row), array, number)

    def _converted(self, row: int, raw: NDArray[Any], label: Any) -> tuple[NDArray[np.float32], int]:
        """What is stored in a row, as an input and its class."""
        try:
            return as_floats(raw), self._class_number(label)
        except InputError as error:
            raise InputError(f"Row {row} of {self.description} {error}") from error

    def _check_like_first(self, dtype: np.dtype[Any], array: NDArray[np.float32]) -> None:
        row, first, shape = self._first
        if array.shape != shape:
            raise InputError(f"has shape {array.shape} and row {row} has {shape}: make all alike (`resize`, `crop`).")
        if dtype != first:
            raise InputError(f"is {dtype} and row {row} is {first}: store all rows as one type.")
        if not np.isfinite(array).all():
            raise InputError("holds NaN or infinite values: remove or repair it.")

    def _class_number(self, label: Any) -> int:
        number = np.asarray(label)
        if number.size != 1 or number.dtype.kind not in "biuf" or not float(number.item()).is_integer():
            raise InputError(f"has the label {reprlib.repr(label)}: labels are the whole numbers 0, 1, 2, ...")
        index = int(number.item())
        if index < 0:
            raise InputError(f"has the label {index}: a negative label marks no class, use labelled data.")
        if self.classes is not None and index >= len(self.classes):
            raise InputError(f"has the label {index}, but there are {len(self.classes)} classes: check the labels.")
        return index


def raw_array(x: Any) -> NDArray[Any]:
    """An array, a tensor or a Pillow image as an array; palettes, masks and transparency become RGB, as in files."""
    if isinstance(x, Image.Image):
        if x.mode.startswith(("I", "F")):
            raise InputError(f"is an image of mode {x.mode}, of more than 8 bits a channel: convert it to 8 bits.")
        return np.asarray(x if x.mode in ("L", "RGB") else x.convert("RGB"))
    return np.asarray(x)


def as_floats(raw: NDArray[Any]) -> NDArray[np.float32]:
    """uint8 to k/255 with channels first; floats unchanged but for their precision."""
    if raw.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
            return raw.astype(np.float32)
    if raw.dtype != np.uint8:
        raise InputError(f"is {raw.dtype}: make it uint8 (0 to 255) or floats in the model's own range.")
    array = channels_first(raw).astype(np.float32)
    array /= np.float32(255)
    return array


def channels_first(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A grey (H, W) image as (1, H, W), and (H, W, C) with 1 or 3 channels as (C, H, W)."""
    if image.ndim == 2:
        return image[np.newaxis]
    if image.ndim == 3 and image.shape[2] in (1, 3) and image.shape[0] not in (1, 3):
        return np.ascontiguousarray(image.transpose(2, 0, 1))
    return image


def file_fingerprint(path: Path) -> str:
    """The SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
