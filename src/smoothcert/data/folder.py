"""A folder of images with one subfolder for each class, the layout of ImageNet's validation set."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.dataset import Dataset
from smoothcert.data.images import EXTENSIONS, Preprocessing, decode
from smoothcert.data.listing import read_listing
from smoothcert.errors import InputError

logger = logging.getLogger(__name__)
SPLITS = frozenset({"train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval"})


class Pictures(Dataset):
    """Images in files of a folder, each with its class.

    A link that leads out of the folder is refused unless links are to be followed: it could show any file of yours.
    """

    def __init__(
        self, folder: Path, images: Sequence[tuple[Path, int]], preprocessing: Preprocessing, follow_links: bool
    ) -> None:
        self._follow_links = follow_links
        if not follow_links:
            _require_inside(folder, [image for image, _ in images])
        self.description = f"the image folder {folder}"
        self.preprocessing = str(preprocessing)
        self._preprocess = preprocessing
        self._folder, self._images = folder, images

    def __len__(self) -> int:
        return len(self._images)

    def stored(self, row: int) -> tuple[NDArray[np.uint8], int]:
        image, label = self._images[row]
        if not self._follow_links:  # one may have come since
            _require_inside(self._folder, [image])
        return decode(image, str(image), self._preprocess), label

    @cached_property
    def fingerprint(self) -> str:
        """Over each image's relative path, size and label: reading all of ImageNet would take minutes."""
        lines = [f"{p.relative_to(self._folder).as_posix()}\0{p.stat().st_size}\0{k}\n" for p, k in self._images]
        return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


class ImageFolder(Pictures):
    """Images by class, then by name; the classes are the subfolders, sorted or in the order of a file.

    The file names one class a line, and may name classes of which the folder holds no image. Of images that are not
    `labelled` all are of one class, wherever they are.
    """

    def __init__(
        self,
        folder: Path,
        preprocessing: Preprocessing,
        classes: Path | None = None,
        *,
        labelled: bool = True,
        follow_links: bool = False,
    ) -> None:
        folder = _with_classes(folder) if labelled else folder
        subfolders = [p.name for p in _subfolders(folder)] if labelled else ["."]
        order = tuple(subfolders) if classes is None else class_order(classes, subfolders)
        images = [
            (image, label)
            for label, name in enumerate(order)
            if name in subfolders
            for image in images_in(folder / name)
        ]
        if not images:
            needed = (
                " in subfolders: it needs one for each class, or `labels`, a file with the name and the label of each "
                "image."
            )
            raise InputError(f"The folder {folder} holds no images{needed if labelled else ': give one that does.'}")
        super().__init__(folder, images, preprocessing, follow_links)
        self.classes = order


def images_in(folder: Path) -> list[Path]:
    """The image files at any depth, by name."""
    return [
        image
        for image in sorted(folder.rglob("*"))
        if image.suffix.lower() in EXTENSIONS and not image.name.startswith(".") and image.is_file()
    ]


def class_order(file: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The classes that a file names, one a line, in the order of the model; these names must be among them."""
    lines = read_listing(file, "class file", "a text file with a class on each line").splitlines()
    classes = tuple(line.strip() for line in lines if line.strip())
    if len(set(classes)) < len(classes):
        raise InputError(f"The class file {file} names a class twice: each line is one class, in the model's order.")
    if unknown := sorted(set(names) - set(classes)):
        raise InputError(
            f"The class file {file} does not name the class {unknown[0]!r} ({len(unknown)} such): "
            "it needs the name of every class there is, in the order of the model's classes."
        )
    return classes


def _require_inside(folder: Path, images: Sequence[Path]) -> None:
    top, links = folder.resolve(), [image for image in images if image.is_symlink()]
    for path in [*{image.parent: None for image in images}, *links]:
        if not path.resolve().is_relative_to(top):
            raise InputError(f"{path} leads out of {folder} by a link: pass `follow_links` if that is meant.")


def _with_classes(folder: Path) -> Path:
    """The folder with the class folders: this one, or the only one in it. Training and test images are not mixed."""
    inside = _subfolders(folder)
    if len(inside) > 1 and {p.name.lower() for p in inside} <= SPLITS:
        raise InputError(f"The folder {folder} holds {' and '.join(p.name for p in inside)}: give one, as {inside[0]}.")
    if len(inside) == 1 and len(_subfolders(inside[0])) > 1 and not (_has_images(inside[0]) or inside[0].is_symlink()):
        logger.info("the class folders are in %s", inside[0])
        return inside[0]
    return folder


def _subfolders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _has_images(folder: Path) -> bool:
    return any(p.suffix.lower() in EXTENSIONS for p in folder.iterdir())
