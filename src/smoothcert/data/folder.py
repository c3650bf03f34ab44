"""A folder of images with one subfolder for each class, the layout of ImageNet's validation set."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.dataset import Dataset
from smoothcert.data.images import EXTENSIONS, Preprocessing, decode
from smoothcert.errors import InputError


class ImageFolder(Dataset):
    """Images by class, then by name; the classes are the subfolders, sorted or in the order of a file.

    The file names one class a line, and may name classes of which the folder holds no image. A link that leads out of
    the folder is refused unless links are to be followed: it could show any file of yours.
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
        subfolders = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
        subfolders = subfolders if labelled else ["."]
        self.classes = tuple(subfolders) if classes is None else _class_order(classes, subfolders)
        self.preprocessing = str(preprocessing)
        self._preprocess = preprocessing
        self._folder = folder
        self._images = [
            (image, label)
            for label, name in enumerate(self.classes)
            if name in subfolders
            for image in sorted((folder / name).rglob("*"))
            if image.suffix.lower() in EXTENSIONS and not image.name.startswith(".") and image.is_file()
        ]
        if not follow_links:
            _require_inside(folder, [folder / name for name in subfolders] + [image for image, _ in self._images])
        self.description = f"the image folder {folder}"
        if not self._images:
            needed = " in subfolders: it needs one for each class." if labelled else ": give one that does."
            raise InputError(f"The folder {folder} holds no images{needed}")

    def __len__(self) -> int:
        return len(self._images)

    def stored(self, row: int) -> tuple[NDArray[np.uint8], int]:
        image, label = self._images[row]
        return decode(image, str(image), self._preprocess), label

    @cached_property
    def fingerprint(self) -> str:
        """Over each image's relative path, size and label: reading all of ImageNet would take minutes."""
        lines = [f"{p.relative_to(self._folder).as_posix()}\0{p.stat().st_size}\0{k}\n" for p, k in self._images]
        return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _require_inside(folder: Path, paths: list[Path]) -> None:
    top = folder.resolve()
    for path in paths:
        if path.is_symlink() and not path.resolve().is_relative_to(top):
            raise InputError(f"{path} is a link out of {folder}: pass `follow_links` if that is meant.")


def _class_order(file: Path, subfolders: list[str]) -> tuple[str, ...]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"The class file {file} cannot be read: it is a text file with a class on each line."
        ) from error
    classes = tuple(line.strip() for line in lines if line.strip())
    if len(set(classes)) < len(classes):
        raise InputError(f"The class file {file} names a class twice: each line is one class, in the model's order.")
    if unknown := sorted(set(subfolders) - set(classes)):
        raise InputError(
            f"The class file {file} does not name the subfolder {unknown[0]!r} ({len(unknown)} such): "
            "it needs every subfolder's name, in the order of the model's classes."
        )
    return classes
