"""A folder of images whose labels stand in a file, as ImageNet's validation set is handed out."""

from __future__ import annotations

import csv
import re
import struct
import zlib
from pathlib import Path

from smoothcert.data.folder import Pictures, class_order, images_in
from smoothcert.data.images import Preprocessing
from smoothcert.data.listing import read_listing
from smoothcert.data.matlab import read_table
from smoothcert.errors import InputError

IMAGENET_NAME = "ILSVRC2012_val_{:08d}"
WNID = re.compile(r"n\d{8}\b", re.ASCII)
META = "meta.mat"
_MOST_META = 1 << 22  # bytes: it may be compressed


class LabelledFolder(Pictures):
    """Images by name, at any depth, each with the label that a file gives it; it may label more than are there.

    A line of the file is a name and a label, between them a comma, a tab or spaces. Labels are class numbers, or names
    of classes, which are sorted or in the order of the file `classes`. A line with a label alone belongs to the image
    of ImageNet's validation set of that number; numbers are then those of ImageNet's development kit, whose `meta.mat`
    beside the file says which class each is.
    """

    def __init__(
        self,
        folder: Path,
        preprocessing: Preprocessing,
        labels: Path,
        classes: Path | None = None,
        follow_links: bool = False,
    ) -> None:
        known = _known(labels)
        numbered = all(re.fullmatch(r"-?\d{1,9}", label, re.ASCII) for label in known.values())
        if numbered and classes is not None:
            raise InputError(f"`classes` orders names, and the labels of {labels} are numbers already: leave it out.")
        order = () if numbered else _order(set(known.values()), classes)
        number = {name: k for k, name in enumerate(order)}
        images = images_in(folder)
        found = [_label_of(image, folder, known) for image in images]
        missing = [image for image, label in zip(images, found, strict=True) if label is None]
        if missing:
            raise InputError(
                f"The file {labels} has no label for {missing[0].relative_to(folder)} ({len(missing)} such): "
                "add its line, or remove the image."
            )
        whole = [int(label) if numbered else number[label] for label in found if label is not None]
        super().__init__(folder, list(zip(images, whole, strict=True)), preprocessing, follow_links)
        self.classes = order or None


def _order(names: set[str], classes: Path | None) -> tuple[str, ...]:
    return tuple(sorted(names)) if classes is None else class_order(classes, sorted(names))


def _label_of(image: Path, folder: Path, known: dict[str, str]) -> str | None:
    """By its path in the folder, its name, or its name without what follows the dot."""
    return next((known[n] for n in (image.relative_to(folder).as_posix(), image.name, image.stem) if n in known), None)


def _known(file: Path) -> dict[str, str]:
    """The label of each name."""
    lines = _lines(file)
    if lines and all(len(line) == 1 for line in lines):
        return _of_imagenet([line[0] for line in lines], file)
    if lines and "." not in lines[0][0] and not re.search(r"\d", "".join(lines[0])):
        del lines[0]  # the names of the columns
    known: dict[str, str] = {}
    for line in lines:
        if len(line) == 1:
            raise InputError(f"The line {line[0]!r} of {file} has no label: write the name, a comma, and the label.")
        wnid = WNID.match(line[1])  # which boxes may follow, in Kaggle's file
        label = wnid[0] if wnid else line[1]
        if known.setdefault(line[0], label) != label:
            raise InputError(f"The label file {file} has two labels for {line[0]}: keep one of its lines.")
    if not known:
        raise InputError(f"The label file {file} holds no lines such as image.png,3: write one for each image.")
    return known


def _lines(file: Path) -> list[list[str]]:
    """The words of each line, separated as in the first one."""
    text = read_listing(file, "label file", "a text file with name,label on each line")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    separator = next((s for s in "\t," if lines and s in lines[0]), None)
    if separator is None:
        return [line.split(maxsplit=1) for line in lines]
    try:
        return [[word.strip() for word in row] for row in csv.reader(lines, delimiter=separator)]
    except csv.Error as error:
        raise InputError(f"The label file {file} cannot be read ({error}): write name,label on each line.") from error


def _of_imagenet(labels: list[str], file: Path) -> dict[str, str]:
    """The k-th label is that of ImageNet's k-th validation image."""
    if not all(map(WNID.fullmatch, labels)):
        names = _development_kit(file)
        try:
            labels = [names[int(label)] for label in labels]
        except (KeyError, ValueError):
            raise InputError(
                f"The label file {file} has labels that {META} does not name: give the two of one kit."
            ) from None
    return {IMAGENET_NAME.format(k): label for k, label in enumerate(labels, start=1)}


def _development_kit(file: Path) -> dict[int, str]:
    """The class that each number of the kit stands for: it has an order of its own, which no network uses."""
    meta = file.with_name(META)
    if not meta.is_file() or meta.stat().st_size > _MOST_META:
        raise InputError(
            f"The lines of {file} have no names: write name,label, or keep the {META} of ImageNet's development kit "
            "beside the labels that come with it."
        )
    try:
        rows = read_table(meta.resolve(), "synsets", _MOST_META)
        return {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in rows if row["num_children"] == 0}
    except (OSError, KeyError, TypeError, OverflowError, ValueError, struct.error, zlib.error) as error:
        raise InputError(f"The file {meta} is not that of ImageNet's development kit: copy it again.") from error
