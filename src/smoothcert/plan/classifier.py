"""Which smoothed classifier a certificate speaks of."""

from __future__ import annotations

from dataclasses import dataclass, replace

from smoothcert.checks import NO_NOISE, check_noise, check_sigma, check_whole
from smoothcert.errors import InputError
from smoothcert.options import keep, named, option
from smoothcert.plan.kinds import KINDS, Duels, Hardmax, Labels, Margins, Softmax, Sparsemax

NOISE = "Noise"
MOST_CLASSES = 1 << 20
LEAST_SIGMA, MOST_SIGMA = 1e-30, 1e30
"""Noise is float32, which holds none beyond."""

EIGHT_BIT = 255


@dataclass(frozen=True)
class Classifier:
    """It returns the class that its votes elect from copies of an input under N(0, σ² I) noise.

    `model` is the fingerprint of the base model, where a run keeps it. Where σ = 0 it is the model itself (`bare`).
    """

    sigma: float = option(help="Standard deviation of the noise, in units of the input.")
    num_classes: int = option(help="Number of classes; commands count the model's scores.", panel="Model and engine")
    noise: str = option(
        "gaussian", help="grid or gaussian; commands take grid for 8-bit images and digits.", panel=NOISE
    )
    levels: int | None = option(
        None, help="Steps of the grid per unit of the input; commands take the data's own.", panel=NOISE
    )
    votes: Duels | Labels | Margins | Softmax | Sparsemax | Hardmax = named(
        *KINDS,
        help="duels between the scores (labels where the model returns labels), labels, margins (parts of a duel), or "
        "shares of a vote: softmax or sparsemax of the scores.",
        panel="Votes",
    )
    model: str = ""

    @classmethod
    def bare(cls, num_classes: int) -> Classifier:
        """The model itself, without noise: the class of its largest score."""
        return cls(sigma=0.0, num_classes=num_classes, noise=NO_NOISE, votes=Labels())

    @property
    def is_bare(self) -> bool:
        return self.noise == NO_NOISE

    @property
    def sigma_in_words(self) -> str:
        return "no noise" if self.is_bare else f"σ = {self.sigma:g}"

    def as_in(self, earlier: Classifier) -> Classifier:
        """With votes that are open as those that were declared, where these are of the same kind."""
        same = self.votes.is_open and isinstance(earlier.votes, type(self.votes))
        return replace(self, votes=earlier.votes) if same else self

    def __post_init__(self) -> None:
        if self.is_bare:
            self._check_bare()
            return
        check_noise(self.noise, self.levels)
        if not isinstance(self.votes, KINDS):
            raise InputError(f"votes must be one of {', '.join(f'{k.__name__}()' for k in KINDS)}, got {self.votes!r}.")
        if not LEAST_SIGMA <= check_sigma(self.sigma) <= MOST_SIGMA:
            raise InputError(f"sigma must lie between {LEAST_SIGMA:g} and {MOST_SIGMA:g}, got {self.sigma!r}.")
        levels = EIGHT_BIT if self.noise == "grid" and self.levels is None else self.levels
        keep(
            self,
            sigma=check_sigma(self.sigma),
            num_classes=check_whole("num_classes", self.num_classes, 2, MOST_CLASSES),
            levels=None if levels is None else int(levels),
        )

    def _check_bare(self) -> None:
        if self.sigma != 0 or self.levels is not None or self.votes != Labels():
            raise InputError("noise none is the model itself, and has no sigma and no votes: use LipschitzClassifier.")
        keep(self, sigma=0.0, num_classes=check_whole("num_classes", self.num_classes, 2, MOST_CLASSES))
