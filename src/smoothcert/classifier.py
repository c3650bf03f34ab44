"""SmoothedClassifier: the few lines most users ever call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.bounds import DEFAULT_METHOD
from smoothcert.bounds.prediction import top_class
from smoothcert.certificate import Certificate, certify_counts_batch, find_method
from smoothcert.checks import check_alpha, check_noise, check_sigma, check_whole
from smoothcert.errors import InputError
from smoothcert.sampling.batches import choose_batch
from smoothcert.sampling.blocks import BLOCK, Block, Input, Phase, blocks_of, input_digest
from smoothcert.sampling.engines import open_engine
from smoothcert.sampling.executor import Executor


class SmoothedClassifier:
    """The classifier that returns the class its base model chooses most often under N(0, σ² I) noise on the input.

    `model` is a torch module or any callable from a float32 NumPy batch to scores (N, c) or labels (N,). Noise is
    added to the input as given: normalisation belongs inside the model. The noise of an input depends on `seed` and
    on the input's values alone, so every answer can be computed again.
    """

    def __init__(
        self,
        model: torch.nn.Module | Callable[..., Any],
        *,
        sigma: float,
        num_classes: int,
        engine: str = "auto",
        noise: str = "gaussian",
        seed: int = 0,
        batch: int | str = "auto",
    ) -> None:
        self.sigma = check_sigma(sigma)
        self.num_classes = check_whole("num_classes", num_classes, 2)
        self.noise, self.seed, self.batch = check_noise(noise), seed, batch
        self.engine = open_engine(model, engine)
        self._counted: defaultdict[str, int] = defaultdict(int)

    def certify(
        self, x: Any, *, n0: int = 100, n: int = 10_000, alpha: float = 0.001, method: str = DEFAULT_METHOD
    ) -> Certificate:
        """The radius around x within which, at risk α, the smoothed classifier provably keeps its class.

        n0 draws select the class, n further draws prove the radius.
        """
        return self.certify_batch([x], n0=n0, n=n, alpha=alpha, method=method)[0]

    def certify_batch(
        self,
        xs: Sequence[Any],
        *,
        n0: int = 100,
        n: int = 10_000,
        alpha: float = 0.001,
        method: str = DEFAULT_METHOD,
    ) -> list[Certificate]:
        """One certificate for each of xs; α is the risk of each single one."""
        check_whole("n0", n0, 1)
        check_whole("n", n, 1)
        check_alpha(alpha)
        find_method(method)
        inputs = [as_input(x) for x in xs]
        if not inputs:
            return []
        return certify_counts_batch(
            self._draw(inputs, Phase.SELECTION, n0),
            self._draw(inputs, Phase.ESTIMATION, n),
            sigma=self.sigma,
            alpha=alpha,
            method=method,
            noise=self.noise,
        )

    def predict(self, x: Any, *, n: int = 1_000, alpha: float = 0.001) -> int:
        """The smoothed classifier's class at x, or ABSTAIN; wrong with probability at most α."""
        return self.predict_batch([x], n=n, alpha=alpha)[0]

    def predict_batch(self, xs: Sequence[Any], *, n: int = 1_000, alpha: float = 0.001) -> list[int]:
        """`predict` for each of xs."""
        check_whole("n", n, 1)
        check_alpha(alpha)
        inputs = [as_input(x) for x in xs]
        if not inputs:
            return []
        return [int(k) for k in top_class(self._draw(inputs, Phase.PREDICT, n), alpha)]

    def count(self, x: Any, n: int) -> NDArray[np.int64]:
        """The votes of n draws at x, shape (c,). Further calls draw further noise: no draw is counted twice."""
        source = as_input(x)
        start = self._counted[source.id]
        blocks = blocks_of(0, Phase.COUNT, start * BLOCK + check_whole("n", n, 1), start)
        self._counted[source.id] += len(blocks)
        counts: NDArray[np.int64] = self._votes([source], blocks)[0]
        return counts

    def _draw(self, inputs: list[Input], phase: Phase, n: int) -> NDArray[np.int64]:
        return self._votes(inputs, [b for i in range(len(inputs)) for b in blocks_of(i, phase, n)])

    def _votes(self, inputs: list[Input], blocks: list[Block]) -> NDArray[np.int64]:
        self.batch = choose_batch(self.batch, self.engine, inputs[0].array)
        executor = Executor(
            self.engine,
            inputs.__getitem__,
            sigma=self.sigma,
            num_classes=self.num_classes,
            seed=self.seed,
            batch=self.batch,
        )
        counts = np.zeros((len(inputs), self.num_classes), dtype=np.int64)
        for votes in executor.run(blocks):
            counts[votes.block.position, votes.classes] += votes.counts
        return counts


def as_input(x: Any) -> Input:
    """x as a float32 array with its hash for an id; NaN and infinities are refused. An Input stays itself."""
    if isinstance(x, Input):
        return x
    try:
        values = x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)
        array = np.ascontiguousarray(values, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError(f"an input must be an array or a tensor of numbers, got {type(x).__name__}.") from None
    if array.size == 0 or not np.isfinite(array).all():
        raise InputError("an input is empty or has NaN or infinite values: repair it before certifying.")
    return Input(input_digest(array), array)
