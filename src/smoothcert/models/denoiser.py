"""A network that takes noise away, in front of a classifier that was not trained with any (Salman et al., 2020)."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional

from smoothcert.errors import InputError
from smoothcert.models.checkpoints import fits, load_weights, read_configuration
from smoothcert.models.residual import convolution
from smoothcert.modules import Model, device_of, require_module

DENOISER = "denoiser"
"""The architecture that a denoiser's file names."""

WIDTH = 64


class Denoiser(nn.Module):
    """`x − g(x)`: five convolutions g, at half the resolution, say what of an image is noise.

    It takes images of any size with the values that the classifier takes: what this does to them first is its own
    business.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = [convolution(4 * channels, WIDTH, 3), *(convolution(WIDTH, WIDTH, 3) for _ in range(3))]
        self.layers = nn.Sequential(
            nn.PixelUnshuffle(2),
            *(layer for conv in inner for layer in (conv, nn.BatchNorm2d(WIDTH), nn.ReLU(inplace=True))),
            nn.Conv2d(WIDTH, 4 * channels, 3, padding=1),
            nn.PixelShuffle(2),
        )

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        even = functional.pad(x, (0, width % 2, 0, height % 2), mode="replicate")
        clean: Tensor = x - self.layers(even)[..., :height, :width]
        return clean


class Denoised(nn.Module):
    """A classifier of what the denoiser leaves of an image: one model, of which the certificates speak."""

    def __init__(self, denoiser: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.denoiser, self.classifier = denoiser, classifier

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.classifier(self.denoiser(x))
        return scores


def denoised(model: Model, path: str | Path) -> Denoised:
    """The classifier behind the denoiser that `smoothcert denoise` has trained for it."""
    why = "a denoiser stands in front of a torch module, and this model is none: leave out `denoiser`."
    classifier = require_module(model, why)
    about = read_configuration(path)
    if about is None or about["arch"] != DENOISER or not fits(Denoiser, about["options"], Path(path)):
        raise InputError(f"{path} holds no denoiser: give the last.safetensors that smoothcert denoise has written.")
    denoiser = Denoiser(**about["options"])
    load_weights(denoiser, path)
    return Denoised(denoiser.to(device_of(classifier)).train(classifier.training), classifier)
