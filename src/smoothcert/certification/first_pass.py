"""Before the first draw: every selected input is read once, checked, and its hash and label kept in the run file.

What is certified is what was there then: an input that is read again later is compared with what was kept. Whatever is
wrong with any of them is told at once, and not after hours of drawing.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from smoothcert.certification.planning import noise_of
from smoothcert.data import Dataset, Example
from smoothcert.errors import InputError
from smoothcert.plan import Classifier, Selection
from smoothcert.sampling.blocks import input_digest
from smoothcert.store.file import RunFile
from smoothcert.store.schema import InputRecord, InputsHash
from smoothcert.store.thumbnails import thumbnail

logger = logging.getLogger(__name__)
MOST_TOLD = 100
"""Broken inputs that are told of one by one."""

ENOUGH = 12
"""Inputs from which on it is strange that all have one label."""

OnRead = Callable[[int, float], None]
"""Called with the inputs read so far and the share of all that they are."""


class Reader:
    """Reads rows of a data set for a classifier, and refuses what it cannot certify."""

    def __init__(self, dataset: Dataset, classifier: Classifier, images: bool) -> None:
        self.dataset, self.images = dataset, images
        self.num_classes, self.noise = classifier.num_classes, noise_of(classifier)

    def read(self, row: int, position: int) -> tuple[Example, InputRecord]:
        """The example in a row, and what is kept of it."""
        example = self.dataset[row]
        if not 0 <= example.label < self.num_classes:
            raise InputError(
                f"input {example.id} has label {example.label}, but the model has {self.num_classes} classes: check "
                f"the labels and their order."
            )
        self.noise.check(example.array, example.id)
        return example, InputRecord(position, example.id, example.label, input_digest(example.array))

    def keep(self, file: RunFile, example: Example, record: InputRecord) -> None:
        """Writes what is kept of an input, with a small picture where one is wanted."""
        file.add_input(record, thumbnail(example.array) if self.images else None)


def first_pass(file: RunFile, reader: Reader, selection: Selection, on_read: OnRead) -> Selection:
    """Keeps every selected input in the file; the selection with their fingerprint, and without the broken ones.

    These are refused, all of them at once, unless the selection leaves them out.
    """
    rows, hashed, seen, broken = selection.rows(reader.dataset), InputsHash(), _Seen(), list[int]()
    problems: list[str] = []
    for i, row in enumerate(rows):
        try:
            example, record = reader.read(row, i - len(broken))
        except InputError as problem:
            broken.append(row)
            if len(broken) <= MOST_TOLD:
                problems.append(str(problem))
        else:
            reader.keep(file, example, record)
            hashed.add(record)
            seen.add(example)
        on_read(i + 1, (i + 1) / len(rows))
    if broken:
        _tell(problems, len(broken), len(rows), selection.skip_broken)
    for doubt in (*seen.doubts(), *_doubts_of_classes(reader.dataset.classes, reader.num_classes)):
        logger.warning(doubt)
    return dataclasses.replace(
        selection, inputs=hashed.fingerprint, broken=tuple(broken), total=len(rows) - len(broken)
    )


def complete(file: RunFile, reader: Reader, selection: Selection) -> None:
    """Reads inputs again whose records a damaged file has lost; with the others they must be those of the start."""
    if not selection.inputs or file.count_inputs() == selection.total:
        return
    hashed = InputsHash()
    for position, row in enumerate(selection.rows(reader.dataset)):
        record = file.input(position)
        if record is None:
            example, record = reader.read(row, position)
            reader.keep(file, example, record)
        hashed.add(record)
    if hashed.fingerprint != selection.inputs:
        raise InputError(f"the inputs are not those {file.path} was started with: the data changed.")


def _tell(problems: list[str], broken: int, total: int, skip: bool) -> None:
    """Every problem, and that the run goes on without these inputs, or a refusal."""
    if total == broken == 1 or (broken == 1 and not skip):
        raise InputError(problems[0])
    for problem in problems:
        logger.warning(problem)
    if broken > len(problems):
        logger.warning("and %d more.", broken - len(problems))
    if broken == total:
        raise InputError(f"none of the {total} inputs can be certified, the first because: {problems[0]}")
    if not skip:
        raise InputError(
            f"{broken} of {total} inputs cannot be certified (each is named above): mend them, or pass `skip_broken` "
            f"to go on without them."
        )
    logger.warning("%d of %d inputs are left out, and their rows kept in the run.", broken, total)


@dataclass
class _Seen:
    """What the inputs have in common."""

    labels: Counter[int] = field(default_factory=Counter)
    least: float = 0.0
    most: float = 1.0
    image: bool = False

    def add(self, example: Example) -> None:
        array: NDArray[np.float32] = example.array
        self.labels[example.label] += 1
        self.least, self.most = min(self.least, float(array.min())), max(self.most, float(array.max()))
        self.image = array.ndim == 3

    def doubts(self) -> list[str]:
        """What is possible, and rarely meant."""
        found = []
        if self.image and (self.least < 0 or self.most > 1):
            found.append(
                f"the images have values from {self.least:.3g} to {self.most:.3g}: are they normalised already? Noise "
                f"and radii are measured in these units; give images in [0, 1] and normalise inside the model."
            )
        if len(self.labels) == 1 and self.labels.total() >= ENOUGH:
            (label,) = self.labels
            found.append(
                f"all {self.labels.total()} inputs have label {label}: data that are sorted by class want every k-th "
                f"input (`skip`)."
            )
        return found


def _doubts_of_classes(classes: tuple[str, ...] | None, num_classes: int) -> list[str]:
    """Does the order of the data's classes look like the model's?"""
    if classes is None:
        return []
    if len(classes) != num_classes:
        some = f"{len(classes)} class{'es' * (len(classes) > 1)}"
        return [
            f"the data have {some} and the model {num_classes}: are their numbers the model's? For a folder, `classes` "
            f"names the model's order."
        ]
    numbers = [int(name) for name in classes if name.isascii() and name.isdigit()]
    if len(numbers) == len(classes) and numbers != sorted(numbers):
        return [f"the classes are taken in the order {', '.join(classes[:4])}, …: `classes` names the model's order."]
    return []
