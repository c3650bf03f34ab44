"""LipschitzClassifier: a network that is Lipschitz by itself, certified without noise."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.certificate import Certificate, certificates
from smoothcert.certification import Care, certify_into
from smoothcert.certification.bare import Bare, exact_scores
from smoothcert.certification.drawing import OnProgress
from smoothcert.certification.first_pass import OnRead
from smoothcert.certification.planning import require_precision
from smoothcert.checks import check_whole
from smoothcert.classifier import as_input
from smoothcert.data import as_dataset
from smoothcert.errors import InputError
from smoothcert.lipschitz.constant import NEEDS_LAYERS, steepness
from smoothcert.lipschitz.exact import ROWS, Frozen, exact_copy
from smoothcert.modules import Model, device_of, evaluated, require_module
from smoothcert.options import keywords, make
from smoothcert.plan import Classifier, Plan, Question, Selection, Setting, Tally
from smoothcert.sampling.blocks import Input
from smoothcert.sampling.engines import Engines
from smoothcert.store.run import Run

SETTING = Setting(engine="torch", batch=ROWS, seed=0)


class LipschitzClassifier:
    """The network itself, computed in float64: the class of its largest score.

    Its certificates need no noise, no draws and no α. With `K_kj` a proved bound of the ℓ2 constant of `f_k − f_j`, the
    class k of x stays the largest within

        R = min_j (f_k(x) − f_j(x) − 4A − 2C) / (K_kj + 2B),

    A and B for what float64 rounds, C for float32 (`certification.bare`). `K_kj = L′ ‖w_k − w_j‖` where the last layer
    is linear with rows w, and L′ the product of all before it; otherwise √2 times the product of all layers. Weights
    are copied now, and when it is first asked the graph is recorded with all that it reads: what is done to the module
    afterwards changes nothing here.

    It pays for networks that are trained to have small constants; for others R is hardly above 0, and noise is better.
    """

    def __init__(self, model: Model | Engines, *, input_shape: Sequence[int], num_classes: int) -> None:
        given = model.model if isinstance(model, Engines) else model
        self._engines = Engines(_copied(require_module(given, NEEDS_LAYERS)))
        self.input_shape = tuple(check_whole("input_shape", side, 1) for side in input_shape)
        self.classifier = Classifier.bare(num_classes)

    @property
    def model(self) -> Model:
        return self._engines.model

    @property
    def num_classes(self) -> int:
        return self.classifier.num_classes

    @property
    def pair_constants(self) -> NDArray[np.float64]:
        """`K_kj` (c, c), proved; 0 where k = j."""
        return self._proved.steepness.pairs.copy()

    def certify(self, x: Any) -> Certificate:
        """The radius around x within which the network provably keeps its class."""
        return self.certify_batch([x])[0]

    def certify_batch(self, xs: Sequence[Any]) -> list[Certificate]:
        """One certificate for each of xs."""
        identity = self._engines.open().identity
        require_precision(Question.without_noise(), identity)
        found = map(self._proved, self._batches(xs))
        claims = [answers.claim(0, row) for answers in found for row in range(len(answers.radii))]
        nothing = np.zeros((len(claims), self.num_classes), dtype=np.int64)
        tally = Tally(nothing, nothing, np.zeros(len(claims)), claims=claims)
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
        """The network's class at x, in float64."""
        return self.predict_batch([x])[0]

    def predict_batch(self, xs: Sequence[Any]) -> list[int]:
        """`predict` for each of xs."""
        twin, device = self._proved.twin, self._proved.engine.device
        return [int(k) for batch in self._batches(xs) for k in exact_scores(twin, device, batch).argmax(axis=1)]

    @cached_property
    def _proved(self) -> Bare:
        """The network and what is proved of it, both from one copy at one time."""
        module = require_module(self.model, NEEDS_LAYERS)
        twin = exact_copy(module, self.input_shape)
        proved = steepness(twin, self.input_shape)
        if len(proved.pairs) != self.num_classes:
            raise InputError(f"the model returns {len(proved.pairs)} scores: pass `num_classes` {len(proved.pairs)}.")
        return Bare(module, Frozen.of(twin, self.input_shape), self._engines.open(), proved)

    def _batches(self, xs: Sequence[Any]) -> Iterator[list[NDArray[Any]]]:
        arrays = [_exact(x) for x in xs]
        for array in arrays:
            if array.shape != self.input_shape:
                raise InputError(f"an input has shape {array.shape}, and `input_shape` is {self.input_shape}.")
        return (arrays[start : start + ROWS] for start in range(0, len(arrays), ROWS))


def _copied(module: torch.nn.Module) -> torch.nn.Module:
    """A copy that nobody else has, in evaluation mode; on the CPU where the device has no float64."""
    evaluating = evaluated(module)
    try:
        own = copy.deepcopy(evaluating)
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"the model cannot be copied ({reason}), and a proof is of a network that nobody changes: let it be one "
            f"that copy.deepcopy takes."
        ) from error
    return own.cpu() if device_of(own).type == "mps" else own


def _exact(x: Any) -> NDArray[Any]:
    """x as it is: float64 is not rounded, which would move it."""
    array = as_input(x).array
    if isinstance(x, Input):
        return array
    raw = np.asarray(x.detach().cpu() if isinstance(x, torch.Tensor) else x)
    return raw.astype(np.float64) if raw.dtype.kind == "f" and raw.dtype.itemsize > 4 else array
