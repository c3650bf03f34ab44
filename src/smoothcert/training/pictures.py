"""The images of a training, in an order of its own each epoch: held in memory, or read while it goes on."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from smoothcert.checks import check_whole
from smoothcert.data import Dataset, select
from smoothcert.errors import InputError

VALIDATION_IMAGES = 1000
"""At most so many images judge an epoch."""

_WINDOW_ROWS, _WINDOW_RUNS = 4096, 16
"""Rows that are stored together are read together: about so many, of so many places at most, are then mixed."""

_MOST_WORKERS = 4


class Held:
    """Images in memory, as bytes where they are bytes, and their labels, which are below `classes`, if any."""

    def __init__(
        self, data: Dataset, classes: int | None, device: torch.device, rows: Sequence[int] | None = None
    ) -> None:
        rows = range(len(data)) if rows is None else rows
        images = np.empty((len(rows), *data.shape), np.uint8 if data.eight_bit else np.float32)
        labels = np.empty(len(rows), np.int64)
        for i, row in enumerate(rows):
            images[i], labels[i] = _stored(data, row)
        _check_labels(labels, classes, data)
        self.images, self.labels = torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device)

    def __len__(self) -> int:
        return len(self.labels)

    def order(self, generator: torch.Generator) -> Tensor:
        """All rows, in random order."""
        return torch.randperm(len(self), generator=generator, device=generator.device)

    def batches(self, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels, so many at a time."""
        for rows in torch.split(order, size):
            yield self.images[rows], self.labels[rows]


class Streamed:
    """Images that worker processes read from disk while the network is trained on those before."""

    def __init__(self, data: Dataset, classes: int | None, device: torch.device, workers: int) -> None:
        self.data, self.classes, self.device, self.workers = data, classes, device, workers

    def __len__(self) -> int:
        return len(self.data)

    def order(self, generator: torch.Generator) -> Tensor:
        """All rows in random order; those stored together are mixed with those of a few other places."""

        def shuffled(count: int) -> Tensor:
            return torch.randperm(count, generator=generator, device=generator.device).cpu()

        runs = self.data.runs
        if runs is None:
            return shuffled(len(self))
        together = min(_WINDOW_RUNS, -(-_WINDOW_ROWS * len(runs) // len(self)))
        windows = torch.tensor_split(shuffled(len(runs)), -(-len(runs) // together))
        places = [torch.arange(run.start, run.stop) for run in runs]
        mixed = [torch.cat([places[number] for number in window.tolist()]) for window in windows]
        return torch.cat([rows[shuffled(len(rows))] for rows in mixed])

    def batches(self, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels, so many at a time."""
        rows = [part.tolist() for part in torch.split(order, size)]
        source = cast("TorchDataset[Any]", _Rows(self.data))
        for read in DataLoader(source, batch_sampler=rows, num_workers=self.workers, collate_fn=_stacked):
            if isinstance(read, InputError):
                raise read
            images, labels = read
            _check_labels(labels, self.classes, self.data)
            yield torch.from_numpy(images).to(self.device), torch.from_numpy(labels).to(self.device)


Pictures = Held | Streamed


def workers_for(data: Dataset, asked: int | None) -> int:
    """How many processes read the images; 0 where they are held: unless asked, where half of the memory holds them."""
    if asked is not None:
        return check_whole("workers", asked, 0)
    size = len(data) * math.prod(data.shape) * (1 if data.eight_bit else 4)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 0 if size <= memory / 2 else min(_MOST_WORKERS, os.cpu_count() or 1)


def spread(data: Dataset) -> range:
    """The rows that judge an epoch, spread over the data."""
    return select(data, skip=-(-len(data) // VALIDATION_IMAGES))


def as_floats(images: Tensor) -> Tensor:
    """Bytes as k/255; floats as they are."""
    return images / 255 if images.dtype == torch.uint8 else images


@dataclass(frozen=True)
class _Rows:
    """What a worker reads; a refusal is handed over as it is, for the training to raise."""

    data: Dataset

    def __getitem__(self, row: int) -> tuple[NDArray[Any], int] | InputError:
        try:
            return _stored(self.data, row)
        except InputError as error:
            return InputError(str(error))


def _stacked(rows: list[Any]) -> tuple[NDArray[Any], NDArray[np.int64]] | InputError:
    for row in rows:
        if isinstance(row, InputError):
            return row
    images, labels = zip(*rows, strict=True)
    return np.stack(images), np.array(labels, np.int64)


def _stored(data: Dataset, row: int) -> tuple[NDArray[Any], int]:
    """An image, as bytes where the data are bytes, and its label."""
    example = data[row]
    return np.rint(255 * example.array).astype(np.uint8) if data.eight_bit else example.array, example.label


def _check_labels(labels: NDArray[np.int64], classes: int | None, data: Dataset) -> None:
    if classes is not None and labels.max() >= classes:
        raise InputError(
            f"{data.description} has the label {labels.max()}, and the network {classes} classes: give it more."
        )
