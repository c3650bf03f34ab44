"""The interface of `locuslab/smoothing`: a script written for it runs with its import changed.

from smoothcert.compat.cohen import Smooth   # was: from core import Smooth
"""

from __future__ import annotations

from typing import Any

import torch

from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.classifier import SmoothedClassifier
from smoothcert.plan import Labels


class Smooth:
    """A smoothed classifier with the calls of Cohen et al. and their method: Clopper-Pearson at α and R_mono."""

    ABSTAIN = ABSTAIN

    def __init__(self, base_classifier: torch.nn.Module, num_classes: int, sigma: float) -> None:
        self.base_classifier, self.num_classes, self.sigma = base_classifier, num_classes, sigma

    def certify(self, x: Any, n0: int, n: int, alpha: float, batch_size: int) -> tuple[int, float]:
        """(class, radius), or (ABSTAIN, 0.0)."""
        certificate = self._smoothed(batch_size).certify(x, n0=n0, n=n, alpha=alpha, method="mono")
        return certificate.prediction, certificate.radius

    def predict(self, x: Any, n: int, alpha: float, batch_size: int) -> int:
        """The class, or ABSTAIN."""
        return self._smoothed(batch_size).predict(x, alpha=alpha, max_n=n)

    def _smoothed(self, batch_size: int) -> SmoothedClassifier:
        return SmoothedClassifier(
            self.base_classifier, sigma=self.sigma, num_classes=self.num_classes, votes=Labels(), batch=batch_size
        )
