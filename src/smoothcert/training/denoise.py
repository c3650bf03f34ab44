"""Training a denoiser for a classifier that stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.checks import check_sigma
from smoothcert.data import as_dataset
from smoothcert.errors import InputError
from smoothcert.models.denoiser import DENOISER, Denoised, Denoiser
from smoothcert.modules import device_of
from smoothcert.options import keywords, make, option
from smoothcert.training.configuration import WORKERS, Configuration, Epoch
from smoothcert.training.loop import Loop
from smoothcert.training.network import channels_last, choose_precision, count_scores, fingerprint
from smoothcert.training.objectives.denoising import Denoising
from smoothcert.training.pictures import Held, Streamed, as_floats, spread, workers_for


@dataclass(frozen=True)
class Recipe:
    """How a denoiser is trained, as it is asked for."""

    sigma: float = option(help="Standard deviation of the noise that is taken away.")
    least_sigma: float | None = option(None, help="For a range: each image's noise is between this and sigma.")
    epochs: int = option(8, help="Epochs.")
    batch: int = option(128, help="Images a step.")
    rate: float = option(3e-3, help="Largest learning rate, of Adam.")
    augment: bool = option(True, help="Random crops and flips.", flag="augment/--no-augment")
    precision: str = option("auto", help="bf16, fp32, or auto: bf16 where the hardware has it.")
    workers: int | None = option(None, help=WORKERS)
    seed: int = option(0, help="Names the first weights, the order and the noise.")

    def __post_init__(self) -> None:
        check_sigma(self.sigma)
        if self.least_sigma is not None and not 0 <= self.least_sigma < self.sigma:
            raise InputError(f"`least_sigma` is {self.least_sigma}: it must lie between 0 and `sigma`.")


@keywords(Recipe)
def train_denoiser(
    model: nn.Module,
    data: Any,
    *,
    out: str | Path,
    validation: Any = None,
    on_progress: Callable[[int, float], None] = lambda images, done: None,
    **given: Any,
) -> list[Epoch]:
    """Train a denoiser for a classifier, which stays as it is, and return the log; labels are not looked at.

    The accuracy of an epoch is how often the classifier says of the denoised noisy image what it says of the image. The
    folder `out` is that of a training (`smoothcert.training.train`); `smoothcert.models.denoised` makes one model of
    the classifier and the denoiser in `last.safetensors`.
    """
    recipe, device = make(Recipe, given), device_of(model)
    rows = as_dataset(data, labelled=False)
    held_out = None if validation is None else as_dataset(validation, labelled=False)
    if len(rows.shape) != 3:
        raise InputError(f"a denoiser is for images, and inputs have the shape {rows.shape}: train the model itself.")
    classifier = deepcopy(model).eval().requires_grad_(False)
    readers = workers_for(rows, recipe.workers)
    count_scores(classifier, "the model", rows.shape)
    options = {"channels": rows.shape[0]}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        denoiser = channels_last(Denoiser(**options)).to(device)
    configuration = Configuration(
        arch=DENOISER,
        options=options,
        data=rows.fingerprint,
        validation=None if held_out is None else held_out.fingerprint,
        sigma=recipe.sigma,
        least_sigma=recipe.least_sigma,
        preset="adam",
        epochs=recipe.epochs,
        batch=recipe.batch,
        rate=recipe.rate,
        margin=None,
        temperature=1.0,
        augment=recipe.augment,
        precision=choose_precision(recipe.precision, Denoised(denoiser, classifier), rows.shape),
        seed=recipe.seed,
        objective={"kind": Denoising.name, "classifier": fingerprint(classifier)},
        weights=None,
        freeze=None,
        streamed=readers > 0,
    )
    loop = Loop(
        denoiser,
        configuration,
        Path(out),
        objective=Denoising(denoiser, classifier),
        criterion=nn.Identity(),
        frozen=[classifier],
        network=Denoised(denoiser, classifier),
    )
    if len(loop.state.log) < configuration.epochs:
        pictures = Streamed(rows, None, device, readers) if readers else Held(rows, None, device)
        judges = None if held_out is None else Held(held_out, None, device, spread(held_out))
        if judges is not None:
            judges.labels = torch.cat([_answers(classifier, x) for x in torch.split(judges.images, recipe.batch)])
        loop.run(pictures, judges, on_progress)
    return loop.state.log


@torch.no_grad()
def _answers(classifier: nn.Module, images: Tensor) -> Tensor:
    scores: Tensor = classifier(as_floats(images))
    return scores.argmax(1)
