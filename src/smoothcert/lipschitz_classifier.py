"""LipschitzClassifier: a network that is Lipschitz by itself, certified without noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smoothcert.certificate import Certificate, certificates
from smoothcert.certification import Care, certify_into
from smoothcert.certification.bare import ROWS, Answers, Bare
from smoothcert.certification.drawing import OnProgress
from smoothcert.certification.first_pass import OnRead
from smoothcert.certification.planning import require_precision
from smoothcert.classifier import as_input
from smoothcert.data import as_dataset
from smoothcert.errors import InputError
from smoothcert.lipschitz.constant import NEEDS_LAYERS, steepness
from smoothcert.modules import Model, require_module
from smoothcert.options import keywords, make
from smoothcert.plan import Classifier, Plan, Question, Selection, Setting, Tally
from smoothcert.sampling.engines import Engines
from smoothcert.store.run import Run

SETTING = Setting(engine="torch", batch=ROWS, seed=0)


class LipschitzClassifier:
    """The network itself: the class of its largest score.

    Its certificates need no noise, no draws and no α. With `K_kj` a proved bound of the ℓ2 constant of `f_k − f_j`, the
    class k of x stays the largest within

        R = min_j (f_k(x) − f_j(x) − 2A) / K_kj,

    A an allowance for what float32 rounds (`certification.bare`). `K_kj = L′ ‖w_k − w_j‖` where the last layer is
    linear with rows w, and L′ the product of all before it; otherwise √2 times the product of all layers.

    It pays for networks that are trained to have small constants; for others R is hardly above 0, and noise is better.
    """

    def __init__(self, model: Model | Engines, *, num_classes: int) -> None:
        self._engines = model if isinstance(model, Engines) else Engines(model)
        require_module(self._engines.model, NEEDS_LAYERS)
        self.classifier = Classifier.bare(num_classes)
        self._made_for: tuple[tuple[int, ...], str] | None = None

    @property
    def model(self) -> Model:
        return self._engines.model

    @property
    def num_classes(self) -> int:
        return self.classifier.num_classes

    def certify(self, x: Any) -> Certificate:
        """The radius around x within which the network provably keeps its class."""
        return self.certify_batch([x])[0]

    def certify_batch(self, xs: Sequence[Any]) -> list[Certificate]:
        """One certificate for each of xs."""
        found = list(self._answers(xs))
        claims = [answers.claim(0, row) for answers in found for row in range(len(answers.radii))]
        nothing = np.zeros((len(claims), self.num_classes), dtype=np.int64)
        tally = Tally(nothing, nothing, np.zeros(len(claims)), claims=claims)
        identity = self._engines.open().identity
        return certificates(self.classifier, Question.without_noise(), tally, engine=identity)

    @keywords(Selection)
    def certify_dataset(
        self,
        data: Any,
        *,
        out: str | Path,
        images: bool = True,
        model_name: str | None = None,
        on_progress: OnProgress = lambda inputs, done: None,
        on_read: OnRead = lambda inputs, done: None,
        **given: Any,
    ) -> Run:
        """Certifies the selected inputs of `data` into the run file `out`, as that of `SmoothedClassifier` does; called
        again it goes on where it was stopped."""
        dataset = as_dataset(data)
        selection = make(Selection, given).of(dataset)
        plan = Plan(self.classifier, Question.without_noise(), SETTING, selection)
        care = Care(images, model_name, on_progress=on_progress, on_read=on_read)
        return certify_into(Path(out), self._engines, dataset, plan, 0, care)

    def predict(self, x: Any) -> int:
        """The network's class at x, as its engine computes it."""
        return self.predict_batch([x])[0]

    def predict_batch(self, xs: Sequence[Any]) -> list[int]:
        """`predict` for each of xs."""
        engine, found = self._engines.open(), list[int]()
        with engine.ready():
            for start in range(0, len(xs), ROWS):
                batch = np.stack([as_input(x).array for x in xs[start : start + ROWS]])
                found += engine(torch.from_numpy(batch).to(engine.device)).argmax(dim=1).tolist()
        return found

    def _answers(self, xs: Sequence[Any]) -> Iterator[Answers]:
        arrays = [as_input(x).array for x in xs]
        if len({array.shape for array in arrays}) > 1:
            raise InputError("the inputs have several shapes: bring all inputs to one shape.")
        for start in range(0, len(arrays), ROWS):
            yield self._bare(arrays[0].shape)(arrays[start : start + ROWS])

    def _bare(self, shape: tuple[int, ...]) -> Bare:
        """The network with its constants, proved once for each shape and anew where its weights have changed."""
        wanted = shape, self._engines.open().fingerprint
        if self._made_for != wanted:
            require_precision(Question.without_noise(), self._engines.open().identity)
            pairs = steepness(self.model, shape).pairs
            if len(pairs) != self.num_classes:
                raise InputError(f"the model returns {len(pairs)} scores: pass `num_classes` {len(pairs)}.")
            self._proved, self._made_for = Bare.of(self._engines, shape, pairs), wanted
        return self._proved
