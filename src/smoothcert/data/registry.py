"""Data sets by the name given on the command line, and which of their rows are wanted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothcert.data.cifar10 import TEST_FILE, Cifar10Binary
from smoothcert.data.dataset import Dataset
from smoothcert.data.digits import digits
from smoothcert.data.folder import ImageFolder, Pictures
from smoothcert.data.images import Preprocessing
from smoothcert.data.labelled import LabelledFolder
from smoothcert.data.names import class_names as names_of
from smoothcert.data.npz import NpzData
from smoothcert.data.objects import ObjectData
from smoothcert.errors import InputError
from smoothcert.imports import import_object

PARQUET = ".parquet"
NUMBER = re.compile(r"[-_]?\d+(-of-(\d+))?(?=\.parquet$)")
"""What tells a shard from the others of its table."""

_KINDS = (
    "an image folder with a subfolder for each class or with `labels`, a .parquet file or a folder of them, an .npz "
    "file, CIFAR-10's binary folder or .bin file, package.module:dataset, or digits"
)


@dataclass(frozen=True)
class _Reading:
    """How files are read."""

    preprocessing: Preprocessing
    labels: Path | None
    classes: Path | None
    labelled: bool
    follow_links: bool


def open_data(
    spec: str | Path,
    *,
    labels: Path | None = None,
    classes: Path | None = None,
    class_names: Path | None = None,
    resize: int | None = None,
    crop: int | None = None,
    labelled: bool = True,
    follow_links: bool = False,
) -> Dataset:
    """The data set that `spec` names; the first row that can be read has been.

    `labels` is a file with the labels of a folder's images, `classes` one with the class order of an image folder,
    `class_names` one with what the classes are called where they are shown. `resize` and `crop` are for encoded images
    (folders, parquet). Links may lead out of an image folder where `follow_links` says so. Data that are not `labelled`
    need no labels, and every label is 0.
    """
    preprocessing = Preprocessing(resize, crop)
    try:
        data = _open(str(spec), _Reading(preprocessing, labels, classes, labelled, follow_links))
    except OSError as error:
        raise InputError(f"The data at {spec} cannot be read: {error.strerror or error}.") from error
    if labels is not None and not isinstance(data, LabelledFolder):
        raise InputError(f"`labels` is for folders of images, and {spec} has labels of its own: leave it out.")
    if classes is not None and not isinstance(data, Pictures):
        raise InputError(f"`classes` is for image folders, and {spec} has numbered labels: leave it out.")
    if data.preprocessing != str(preprocessing):
        raise InputError(f"`resize` and `crop` are for encoded images, and {spec} holds arrays: leave them out.")
    if len(data) == 0:
        raise InputError(f"There is nothing in {data.description}: give one with at least one row.")
    if class_names is not None:
        data.classes = names_of(class_names, data.classes)
    _ = data.shape
    return data


def as_dataset(data: Any, labelled: bool = True) -> Dataset:
    """What a caller of the Python API has, as a data set: one of ours, a path, or a map-style data set."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | Path):
        return open_data(data, labelled=labelled)
    return ObjectData(data, f"the given {type(data).__name__}", labelled)


def _open(spec: str, how: _Reading) -> Dataset:
    path = Path(spec)
    if spec == "digits":
        return digits(train=False)
    if path.is_dir():
        return _open_folder(path, how)
    if path.is_file():
        return _open_file(path, how)
    if path.suffix.lower() == PARQUET and "*" in path.name:
        return _open_shards(sorted(path.parent.glob(path.name)), spec, how)
    if re.fullmatch(r"[\w.]+:[\w.]+", spec):
        return ObjectData(import_object(spec), f"the data set {spec}", how.labelled)
    raise InputError(f"There is no data at {spec}: give {_KINDS}.")


def _open_folder(path: Path, how: _Reading) -> Dataset:
    if how.labels is not None:
        return LabelledFolder(path, how.preprocessing, how.labels, how.classes, how.follow_links)
    if (path / TEST_FILE).is_file():
        return Cifar10Binary(path / TEST_FILE)
    shards = sorted(path.glob(f"*{PARQUET}")) or sorted(path.glob(f"data/*{PARQUET}"))
    if shards:
        return _open_shards(shards, str(path), how)
    return ImageFolder(path, how.preprocessing, how.classes, labelled=how.labelled, follow_links=how.follow_links)


def _open_shards(shards: Sequence[Path], spec: str, how: _Reading) -> Dataset:
    """All parts of one table (`test-00000-of-00002.parquet`, as Hugging Face names them), and of no other."""
    tables = {NUMBER.sub("*", shard.name) for shard in shards}
    if len(tables) > 1:
        choices = " or ".join(f"'{shards[0].with_name(name)}'" for name in sorted(tables))
        raise InputError(f"{spec} holds several tables, and training and test data are not mixed: give {choices}.")
    if not shards:
        raise InputError(f"There is no data at {spec}: give {_KINDS}.")
    number = NUMBER.search(shards[0].name)
    if number and number[2] and int(number[2]) != len(shards):
        raise InputError(f"{spec} holds {len(shards)} of {int(number[2])} shards: download all, or name one file.")
    from smoothcert.data.shards import ParquetShards  # needs pyarrow, which is an extra

    return ParquetShards(shards, f"the parquet files {spec}", how.preprocessing, how.labelled)


def _open_file(path: Path, how: _Reading) -> Dataset:
    match path.suffix.lower():
        case ".parquet":
            from smoothcert.data.parquet import ParquetData  # needs pyarrow, which is an extra

            return ParquetData(path, how.preprocessing, how.labelled)
        case ".npz":
            return NpzData(path, how.labelled)
        case ".bin":
            return Cifar10Binary(path)
    raise InputError(f"The file {path} is of no known kind: give {_KINDS}.")


def select(dataset: Dataset, skip: int = 1, limit: int | None = None) -> range:
    """Every `skip`-th row, as Cohen's script takes them, and at most `limit` of them.

    >>> list(select(digits(train=False), skip=100))
    [0, 100, 200]
    """
    if skip < 1:
        raise InputError(f"`skip` takes every k-th row, k at least 1, not {skip}.")
    if limit is not None and limit < 1:
        raise InputError(f"`limit` is a number of rows, at least 1, not {limit}.")
    return range(0, len(dataset), skip)[:limit]
