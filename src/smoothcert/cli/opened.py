"""The model and the data that a command names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from smoothcert.certification.planning import count_classes
from smoothcert.classifier import SmoothedClassifier
from smoothcert.cli.nouns import Given
from smoothcert.data import Dataset, open_data
from smoothcert.lipschitz_classifier import LipschitzClassifier
from smoothcert.models import denoised, load_model
from smoothcert.options import make, option
from smoothcert.plan.selection import INPUTS
from smoothcert.plan.setting import ENGINE
from smoothcert.sampling.engines import Engines


@dataclass(frozen=True)
class Loading:
    """How they are opened."""

    labels: Path | None = option(
        None, help="File with the labels of a folder's images: name,label on each line.", panel=INPUTS
    )
    classes: Path | None = option(
        None, help="File with a class name a line: the class order of a folder.", panel=INPUTS
    )
    class_names: Path | None = option(
        None, help="File with what the classes are called: a name a line, or JSON.", panel=INPUTS
    )
    resize: int | None = option(None, help="Resize images: length of the shorter side.", panel=INPUTS)
    crop: int | None = option(None, help="Crop images to a centred square of this side.", panel=INPUTS)
    follow_links: bool = option(False, help="Follow links that lead out of an image folder.", panel=INPUTS)
    weights: Path | None = option(None, help="Weights: .pt, .pth.tar or .safetensors.", panel=ENGINE)
    denoiser: Path | None = option(None, help="A denoiser for the model: what denoise has written.", panel=ENGINE)
    device: str = option("auto", help="cpu, cuda, mps, or auto.", panel=ENGINE)

    def dataset(self, spec: str) -> Dataset:
        """The data, opened so."""
        return open_data(
            spec,
            labels=self.labels,
            classes=self.classes,
            class_names=self.class_names,
            resize=self.resize,
            crop=self.crop,
            follow_links=self.follow_links,
        )

    def unlabelled(self, spec: str) -> Dataset:
        """Other data, of which labels are not wanted, opened so."""
        return open_data(spec, resize=self.resize, crop=self.crop, labelled=False, follow_links=self.follow_links)


class Opened:
    """Data, which are opened at once, and a model, which is loaded when it is wanted."""

    def __init__(self, model: str, data: str, given: Given) -> None:
        how = make(Loading, given)
        self.dataset = how.dataset(data)
        self._model, self._how = model, how
        self.name = model if how.denoiser is None else f"{model}+denoiser"

    def engines(self, num_classes: int | None = None) -> Engines:
        """The model, loaded."""
        how = self._how
        model = load_model(self._model, weights=how.weights, num_classes=num_classes, device=how.device)
        return Engines(model if how.denoiser is None else denoised(model, how.denoiser))

    def bare(self, num_classes: int | None) -> LipschitzClassifier:
        """The network itself; classes are counted unless given."""
        engines = self.engines(num_classes)
        return LipschitzClassifier(
            engines,
            input_shape=self.dataset.shape,
            num_classes=num_classes or count_classes(engines, self.dataset),
        )

    def smoothed(self, classifier: Given, setting: Given, real_noise: bool = False) -> SmoothedClassifier:
        """The smoothed classifier: classes are counted unless given, and the noise is that of the grid that the data
        lie on, if any, unless it is given or has to be real."""
        engines, known = self.engines(classifier.get("num_classes")), dict(classifier)
        if "noise" not in known and not real_noise and (self.dataset.levels or "levels" in known):
            known["noise"] = "grid"
        if known.get("noise") == "grid":
            known.setdefault("levels", self.dataset.levels)
        if "num_classes" not in known:
            known["num_classes"] = count_classes(engines, self.dataset)
        computing = dict(setting)
        if "calibration" in computing:
            computing["calibration"] = self._how.unlabelled(computing["calibration"])
        return SmoothedClassifier(engines, **known, **computing)
