"""SmoothedClassifier: the few lines most users ever call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.bounds import DEFAULT_METHOD
from smoothcert.bounds.prediction import top_class
from smoothcert.bounds.sequential import SequentialPlan
from smoothcert.certificate import PROVED, Certificate, certify_counts_batch, find_method
from smoothcert.checks import check_batch, check_level, check_noise, check_seed, check_sigma, check_whole
from smoothcert.errors import InputError
from smoothcert.sampling.batches import choose_batch
from smoothcert.sampling.blocks import BLOCK, Block, Input, Phase, blocks_of, input_digest
from smoothcert.sampling.engines import open_engine
from smoothcert.sampling.executor import Executor
from smoothcert.sampling.schedules import Adaptive, Fixed, sequential_plan


class SmoothedClassifier:
    """The classifier that returns the class its base model chooses most often under N(0, σ² I) noise on the input.

    `model` is a torch module, the path of an .onnx file, or any callable from a float32 NumPy batch to scores (N, c)
    or labels (N,). Noise is
    added to the input as given: normalisation belongs inside the model. The noise of an input depends on `seed` and
    on the input's values alone, so every answer can be computed again.
    """

    def __init__(
        self,
        model: torch.nn.Module | Callable[..., Any] | Path,
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
        self.noise, self.seed, self.batch = check_noise(noise), check_seed(seed), check_batch(batch)
        self.engine = open_engine(model, engine)
        self._counted: defaultdict[str, int] = defaultdict(int)

    def certify(
        self,
        x: Any,
        *,
        n0: int = 100,
        n: int = 10_000,
        alpha: float = 0.001,
        method: str = DEFAULT_METHOD,
        radii: Sequence[float] | None = None,
        width: float | None = None,
        max_n: int = 100_000,
        futility: float = 0.05,
    ) -> Certificate:
        """The radius around x within which, at risk α, the smoothed classifier provably keeps its class.

        n0 draws select the class, n further draws prove the radius. With `radii` or `width` it draws as many as are
        needed, at most `max_n`; see `certify_batch`.
        """
        return self.certify_batch(
            [x],
            n0=n0,
            n=n,
            alpha=alpha,
            method=method,
            radii=radii,
            width=width,
            max_n=max_n,
            futility=futility,
        )[0]

    def certify_batch(
        self,
        xs: Sequence[Any],
        *,
        n0: int = 100,
        n: int = 10_000,
        alpha: float = 0.001,
        method: str = DEFAULT_METHOD,
        radii: Sequence[float] | None = None,
        width: float | None = None,
        max_n: int = 100_000,
        futility: float = 0.05,
    ) -> list[Certificate]:
        """One certificate for each of xs; α is the risk of each single one.

        With `radii` the certified radius is the largest of them that is claimed, with `width` the draws end when the
        radius is within that share of what max_n draws would prove; `n` and `method` play no part then, and the
        certificate's n is the number of draws used. `futility` is the chance of giving up an input that max_n draws
        would certify; it costs certificates, never validity.
        """
        n0, n = check_whole("n0", n0, 1), check_whole("n", n, 1)
        find_method(method)
        plan = sequential_plan(self.sigma, alpha, radii, width, max_n, futility)
        inputs = [as_input(x) for x in xs]
        if not inputs:
            return []
        if plan is not None:
            return self._certify_adaptively(inputs, n0, plan)
        counts = self._votes(inputs, Fixed(inputs=len(inputs), n0=n0, n=n))
        return certify_counts_batch(
            counts[Phase.SELECTION],
            counts[Phase.ESTIMATION],
            sigma=self.sigma,
            alpha=alpha,
            method=method,
            noise=self.noise,
        )

    def _certify_adaptively(self, inputs: list[Input], n0: int, plan: SequentialPlan) -> list[Certificate]:
        schedule = Adaptive(plan, inputs=len(inputs), n0=n0, num_classes=self.num_classes)
        claims = {}
        for votes in self._executor(inputs, at_most=BLOCK * len(inputs)).run(schedule):
            if claim := schedule.tell(votes):
                claims[claim.position] = claim
        return [
            Certificate(c.prediction, c.radius, self.sigma, plan.alpha, "adaptive", self.noise, PROVED, n0, c.n)
            for _, c in sorted(claims.items())
        ]

    def predict(self, x: Any, *, n: int = 1_000, alpha: float = 0.001) -> int:
        """The smoothed classifier's class at x, or ABSTAIN; wrong with probability at most α."""
        return self.predict_batch([x], n=n, alpha=alpha)[0]

    def predict_batch(self, xs: Sequence[Any], *, n: int = 1_000, alpha: float = 0.001) -> list[int]:
        """`predict` for each of xs."""
        check_whole("n", n, 1)
        check_level(alpha)
        inputs = [as_input(x) for x in xs]
        if not inputs:
            return []
        blocks = (b for i in range(len(inputs)) for b in blocks_of(i, Phase.PREDICT, n))
        return [int(k) for k in top_class(self._votes(inputs, blocks)[Phase.PREDICT], alpha)]

    def count(self, x: Any, n: int) -> NDArray[np.int64]:
        """The votes of n draws at x, shape (c,). Further calls draw further noise: no draw is counted twice."""
        source = as_input(x)
        start = self._counted[source.id]
        draws = start * BLOCK + check_whole("n", n, 1)
        self._counted[source.id] = -(-draws // BLOCK)
        counts: NDArray[np.int64] = self._votes([source], blocks_of(0, Phase.COUNT, draws, start))[Phase.COUNT][0]
        return counts

    def _votes(self, inputs: list[Input], blocks: Iterable[Block]) -> dict[Phase, NDArray[np.int64]]:
        """The counts (inputs, classes) of each phase."""
        shape = len(inputs), self.num_classes
        counts: defaultdict[Phase, NDArray[np.int64]] = defaultdict(lambda: np.zeros(shape, dtype=np.int64))
        for votes in self._executor(inputs).run(blocks):
            counts[votes.phase][votes.position, votes.classes] += votes.counts
        return counts

    def _executor(self, inputs: list[Input], at_most: int | None = None) -> Executor:
        """Sampling with the chosen batch, or a smaller one where fewer rows than that are wanted at a time."""
        self.batch = choose_batch(self.batch, self.engine, inputs[0].array)
        return Executor(
            self.engine,
            inputs.__getitem__,
            sigma=self.sigma,
            num_classes=self.num_classes,
            seed=self.seed,
            batch=self.batch if at_most is None else min(self.batch, at_most),
        )


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
