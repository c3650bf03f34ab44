"""What a set of certificates amounts to: certified accuracy, average certified radius, abstentions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from smoothcert.certificate import Certificate

ENOUGH = 12
TRAINING = "train it under noise of this sigma, or put a denoiser in front of it (docs/training.md)"
STEPS = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class Summary:
    """Shares of all inputs: an abstention and a wrong class both count against them.

    `accuracy` is certified accuracy at radius 0: the right class, proved. The average certified radius counts 0
    for every input that is not certified with the right class (Zhai et al., 2020).
    """

    inputs: int
    accuracy: float
    abstained: float
    average_radius: float
    radii: NDArray[np.float64]
    certified: NDArray[np.float64]


@dataclass(frozen=True)
class Accuracies:
    """What the certified accuracy stands beside, as shares of all inputs; None where it is not known.

    `clean`: the model alone, without noise. `noisy`: a draw of the selection sample, so the model under noise.
    `smoothed`: the class that the votes of the classifier choose, certified or not; never below certified accuracy.
    """

    clean: float | None
    noisy: float | None
    smoothed: float | None

    def __str__(self) -> str:
        said = {"the model alone": self.clean, "under noise": self.noisy, "smoothed": self.smoothed}
        return ", ".join(f"{name} {share:.3f}" for name, share in said.items() if share is not None)

    def hint(self, inputs: int, num_classes: int) -> str | None:
        """What to do where an accuracy of so many inputs cannot be told from chance, or noise takes a third of it."""
        if inputs < ENOUGH:
            return None
        if self.clean is not None and _by_chance(self.clean, inputs, num_classes):
            return (
                "without noise the model is right as rarely as by chance: is the order of the classes that of the "
                "model (`classes`), and are the inputs scaled as in training, and normalised once?"
            )
        if self.smoothed is not None and _by_chance(self.smoothed, inputs, num_classes):
            return f"under noise the model is right as rarely as by chance: {TRAINING}, or take a smaller `sigma`" + (
                "." if self.clean is not None else ", or check the order of the classes."
            )
        if self.clean is not None and self.noisy is not None and self.noisy < self.clean * 2 / 3:
            return f"noise takes more than a third of the model's accuracy: {TRAINING}."
        return None


def _by_chance(share: float, inputs: int, num_classes: int) -> bool:
    """Would guessing be right as often in more than 1 of 40 cases?"""
    return bool(binom.sf(round(share * inputs) - 1, inputs, 1 / num_classes) > 0.025)


def certified_radii(certificates: Sequence[Certificate], labels: ArrayLike) -> NDArray[np.float64]:
    """The radius of each input whose certified class is its label, else -1."""
    right = [c.prediction == k and not c.abstained for c, k in zip(certificates, np.asarray(labels), strict=True)]
    return np.where(right, [c.radius for c in certificates], -1.0)


def summarise(certificates: Sequence[Certificate], labels: ArrayLike, radii: ArrayLike) -> Summary:
    """The summary at the given radii."""
    return summary_at(radii, certified_radii(certificates, labels), certificates)


def summary_at(radii: ArrayLike, won: NDArray[np.float64], certificates: Sequence[Certificate]) -> Summary:
    """The same where the certified radii are known."""
    at = np.asarray(radii, dtype=np.float64)
    return Summary(
        inputs=len(won),
        accuracy=float((won >= 0).mean()),
        abstained=float(np.mean([c.abstained for c in certificates])),
        average_radius=float(won.clip(0).mean()),
        radii=at,
        certified=(won[:, None] >= at).mean(axis=0),
    )


def possibly_wrong(inputs: int, alpha: float, rho: float) -> int:
    """How many of the certificates may be wrong: the least k with P(Binomial(inputs, α) ≤ k) ≥ 1 − ρ.

    Each certificate is wrong with probability at most α and the inputs draw their noise independently, so with
    confidence 1 − ρ at most k of them are wrong, and certified accuracy less k / inputs holds for the whole set, at all
    radii at once (Cohen et al., 2019, appendix; the exact quantile in place of their Bernstein bound).

    >>> possibly_wrong(200, 0.001, 0.001)
    3
    """
    return int(binom.isf(rho, inputs, alpha)) if alpha else 0


def curve(won: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Certified accuracy as a step function: the share y[i] holds on (x[i − 1], x[i]], and 0 beyond the last x.

    >>> [v.tolist() for v in curve(np.array([0.5, 0.25, -1.0, 0.5]))]
    [[0.0, 0.25, 0.5], [0.75, 0.75, 0.5]]
    """
    x = np.unique([0.0, *won.clip(0)])
    return x, 1 - np.searchsorted(np.sort(won), x) / len(won)


def usual_radii(largest: float, columns: int = 7) -> NDArray[np.float64]:
    """Round radii from one step up to the largest certified one, at most `columns` of them.

    >>> usual_radii(0.8).tolist()
    [0.25, 0.5, 0.75]
    """
    step = next((s for s in STEPS if s * columns > largest), 10.0 ** np.ceil(np.log10(max(largest, 1) / columns)))
    return np.arange(1, max(1, int(largest / step)) + 1) * np.float64(step)
