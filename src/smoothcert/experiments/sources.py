"""Where the networks and the images of the claims are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothcert.data import Dataset, open_data
from smoothcert.errors import InputError
from smoothcert.models.checkpoints import read_configuration
from smoothcert.options import option

MODELS = Path("experiments/models")
RESIZE, CROP = 256, 224
"""Of ImageNet's images: the shorter side, then the central square."""

NONE = Path("none")
"""In the place of ImageNet: its figures are left out."""


@dataclass(frozen=True)
class Sources:
    """What a claim is computed from."""

    data: Path | None = option(None, help="CIFAR-10: its test set, or the folder of test.parquet.")
    imagenet: Path | None = option(
        None, help="ImageNet's validation images (paper scale): a folder or parquet shards; none leaves them out."
    )
    imagenet_labels: Path | None = option(
        None, help="File with the labels of ImageNet's images, where these are in one folder."
    )
    checkpoints: list[Path] | None = option(
        None, help="Folder of trained networks (experiments/models), or of Cohen's archive; repeatable."
    )
    device: str = option("auto", help="cpu, cuda, mps, or auto.")

    @property
    def folders(self) -> list[Path]:
        """Where networks are looked for, in this order."""
        return self.checkpoints or [MODELS]


def find_weights(arch: str, sigma: float, folders: Sequence[Path]) -> tuple[str, Path] | None:
    """The architecture and the file of a network that was trained under noise σ.

    It is found by its name (`liresnet-noise0.50.safetensors`), in the folders of Cohen's archive, or by what
    `smoothcert train` wrote into it, alone or in the folder of a training; there `liresnet` may be `liresnet_l12w512`.
    """
    for folder in folders:
        noise = Path(f"noise_{sigma:.2f}") / "checkpoint.pth.tar"
        known = [
            folder / f"{arch}-noise{sigma:.2f}.safetensors",
            *(top / "cifar10" / arch.removeprefix("cifar_") / noise for top in (folder, folder / "models")),
            *(top / "imagenet" / arch / noise for top in (folder, folder / "models")),
        ]
        for path in known:
            if path.is_file():
                return (read_configuration(path) or {}).get("arch", arch), path
        for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*/best.safetensors")]):
            trained = read_configuration(path) or {}
            family = trained.get("arch", "")
            if (family == arch or family.startswith(f"{arch}_")) and trained.get("sigma") == sigma:
                return family, path
    return None


def imagenet_validation(path: Path, labels: Path | None) -> Dataset:
    """ImageNet's validation images: wnid folders, also in `val` or `validation`; images in one folder with a
    label file; or Hugging Face's parquet shards, those named validation where there are others."""
    inside = [path / name for name in ("val", "validation")]
    shards = [shard for top in (path, path / "data") for shard in sorted(top.glob("val*.parquet"))]
    if shards:
        spec = str(shards[0].parent / "val*.parquet")
    else:
        spec = str(next((folder for folder in inside if folder.is_dir()), path))
    return open_data(spec, labels=labels, resize=RESIZE, crop=CROP)


def together(*openers: Callable[[], Any]) -> list[Any]:
    """What all of them open, or one error that says all that is missing."""
    opened, missing = [], []
    for opener in openers:
        try:
            opened.append(opener())
        except InputError as error:
            missing.append(str(error))
    if missing:
        raise InputError("\n".join(missing))
    return opened
