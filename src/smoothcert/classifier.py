"""SmoothedClassifier: the few lines most users ever call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.bounds import DEFAULT_INTERVAL, DEFAULT_METHOD, SoftVotes
from smoothcert.bounds.prediction import top_class
from smoothcert.bounds.sequential import SequentialPlan
from smoothcert.certificate import (
    ESTIMATED,
    PROVED,
    Certificate,
    certify_counts_batch,
    certify_soft_batch,
    find_interval,
    find_method,
)
from smoothcert.checks import check_batch, check_level, check_seed, check_sigma, check_whole, less_error
from smoothcert.errors import InputError
from smoothcert.lipschitz.sources import LOCAL, check_lipschitz, local_constants, scores_constant
from smoothcert.sampling.blocks import BLOCK, Block, Claim, Input, Phase, blocks_of, input_digest
from smoothcert.sampling.choice import choose_engine
from smoothcert.sampling.engines import open_engine
from smoothcert.sampling.executor import Executor
from smoothcert.sampling.noise import open_noise
from smoothcert.sampling.schedules import Adaptive, Fixed, SelectFirst, sequential_plan
from smoothcert.sampling.simplex import HARD, check_votes, component_constant, shares

FAR_MORE = 10
"""Times more draws than an engine was chosen for, which may pay for a faster one."""


class SmoothedClassifier:
    """The classifier that returns the class its base model chooses most often under N(0, σ² I) noise on the input.

    `model` is a torch module, the path of an .onnx file, or any callable from a float32 NumPy batch to scores (N, c)
    or labels (N,). Noise is added to the input as given: normalisation belongs inside the model. The noise of an input
    depends on `seed` and on the input's values alone, so every answer can be computed again.

    `noise="gaussian"` adds float32 noise in float32, whereas the theorem is about real numbers: a model built to look
    at the last bits of its input can obtain a certificate that is false. `noise="grid"` leaves no such bits: the
    smoothed classifier rounds x + noise to multiples of 1/`levels` (1/255 unless given: 8-bit images), and what is
    drawn is exact up to a proved error, which is taken off α. It certifies inputs on that grid, and predicts for all.
    """

    def __init__(
        self,
        model: torch.nn.Module | Callable[..., Any] | Path,
        *,
        sigma: float,
        num_classes: int,
        engine: str = "auto",
        noise: str = "gaussian",
        levels: int | None = None,
        seed: int = 0,
        batch: int | str = "auto",
    ) -> None:
        self.sigma = check_sigma(sigma)
        self.num_classes = check_whole("num_classes", num_classes, 2)
        self.noise = open_noise(noise, self.sigma, levels)
        self.seed, self.batch = check_seed(seed), check_batch(batch)
        self.model, self.engine = model, open_engine(model, engine)
        self._asked, self._chosen_for = (engine, self.batch), 0
        self._counted: defaultdict[str, int] = defaultdict(int)

    def certify(
        self,
        x: Any,
        *,
        n0: int = 100,
        n: int = 10_000,
        alpha: float = 0.001,
        method: str = DEFAULT_METHOD,
        votes: str = HARD,
        temperature: float = 1.0,
        interval: str = DEFAULT_INTERVAL,
        lipschitz: float | str | None = None,
        radii: Sequence[float] | None = None,
        width: float | None = None,
        max_n: int = 100_000,
        futility: float = 0.05,
    ) -> Certificate:
        """The radius around x within which, at risk α, the smoothed classifier provably keeps its class.

        n0 draws select the class, n further draws prove the radius. With soft `votes`, or with `radii` or `width` to
        draw as many as are needed, see `certify_batch`.
        """
        return self.certify_batch(
            [x],
            n0=n0,
            n=n,
            alpha=alpha,
            method=method,
            votes=votes,
            temperature=temperature,
            interval=interval,
            lipschitz=lipschitz,
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
        votes: str = HARD,
        temperature: float = 1.0,
        interval: str = DEFAULT_INTERVAL,
        lipschitz: float | str | None = None,
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

        With `votes="softmax"` or `"sparsemax"` of the scores divided by `temperature`, the smoothed classifier returns
        the class with the largest mean share, and `interval` takes the place of `method`. `lipschitz` is then a bound
        on the ℓ2 constant of the scores that you vouch for, "product" to prove one from the layers, or "local" to
        estimate one near each input: that basis is *estimated*, and nothing is proved.
        """
        n0, n = check_whole("n0", n0, 1), check_whole("n", n, 1)
        find_method(method)
        find_interval(interval)
        plan = sequential_plan(self.sigma, alpha, radii, width, max_n, futility)
        check_votes(votes, temperature, n0=n0, n=n, adaptive=plan is not None)
        check_lipschitz(lipschitz, votes=votes, temperature=temperature, noise=self.noise.name, model=self.model)
        inputs = [as_input(x) for x in xs]
        if not inputs:
            return []
        for source in inputs:
            self.noise.check(source.array, source.id)
        error = self.noise.error((plan.max_n if plan else n) * inputs[0].array.size)
        level = less_error(alpha, error)
        self._choose_engine(inputs, n0 + n)
        if plan is not None:
            claims = self._claims(inputs, n0, replace(plan, alpha=level))
            facts = self.sigma, alpha, "adaptive", self.noise.name, PROVED, n0
            return [Certificate(c.prediction, c.radius, *facts, c.n, noise_error=error) for c in claims]
        if votes != HARD:
            selection, estimation = self._soft_votes(inputs, n0, n, partial(shares, votes, temperature))
            return certify_soft_batch(
                selection,
                estimation,
                sigma=self.sigma,
                votes=votes,
                alpha=alpha,
                interval=interval,
                lipschitz=self._constants(inputs, lipschitz, component_constant(votes, temperature, self.num_classes)),
                basis=ESTIMATED if lipschitz == LOCAL else PROVED,
                noise=self.noise.name,
                noise_error=error,
            )
        counts = self._votes(inputs, Fixed(inputs=len(inputs), n0=n0, n=n))
        return certify_counts_batch(
            counts[Phase.SELECTION],
            counts[Phase.ESTIMATION],
            sigma=self.sigma,
            alpha=alpha,
            method=method,
            noise=self.noise.name,
            noise_error=error,
        )

    def _soft_votes(
        self, inputs: list[Input], n0: int, n: int, map_scores: Callable[[torch.Tensor], torch.Tensor]
    ) -> tuple[SoftVotes, SoftVotes]:
        schedule = SelectFirst(inputs=len(inputs), n0=n0, n=n, num_classes=self.num_classes)
        sums = {phase: SoftVotes.zeros(len(inputs), self.num_classes) for phase in schedule.draws}
        for votes in self._executor(inputs, map_scores=map_scores).run(schedule):
            schedule.tell(votes)
            assert votes.soft is not None
            soft = votes.soft
            sums[votes.phase].add(votes.position, votes.draws, soft.sums, soft.squares, soft.products)
        return sums[Phase.SELECTION], sums[Phase.ESTIMATION]

    def _constants(
        self, inputs: list[Input], lipschitz: float | str | None, factor: float
    ) -> NDArray[np.float64] | None:
        """`factor` times the ℓ2 constant of the scores, for each input."""
        if lipschitz == LOCAL:
            return factor * np.array(local_constants(self.model, [source.array for source in inputs]))
        constant = scores_constant(lipschitz, self.model, inputs[0].array.shape)
        return None if constant is None else np.full(len(inputs), factor * constant)

    def _claims(self, inputs: list[Input], n0: int, plan: SequentialPlan) -> list[Claim]:
        schedule = Adaptive(plan, inputs=len(inputs), n0=n0, num_classes=self.num_classes)
        claims = {}
        for votes in self._executor(inputs, at_most=BLOCK * len(inputs)).run(schedule):
            if claim := schedule.tell(votes):
                claims[claim.position] = claim
        return [claim for _, claim in sorted(claims.items())]

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
        level = less_error(alpha, self.noise.error(n * inputs[0].array.size))
        self._choose_engine(inputs, n)
        return [int(k) for k in top_class(self._votes(inputs, blocks)[Phase.PREDICT], level)]

    def count(self, x: Any, n: int) -> NDArray[np.int64]:
        """The votes of n draws at x, shape (c,). Further calls draw further noise: no draw is counted twice."""
        source = as_input(x)
        self._choose_engine([source], check_whole("n", n, 1))
        start = self._counted[source.id]
        draws = start * BLOCK + n
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

    def _choose_engine(self, inputs: list[Input], draws: int) -> None:
        """Engine and batch for so many draws of each input: chosen once, and again where far more are wanted."""
        engine, batch = self._asked
        measured, draws = engine == "auto" and isinstance(self.model, torch.nn.Module), draws * len(inputs)
        if not self._chosen_for or (measured and draws >= FAR_MORE * self._chosen_for):
            choice = choose_engine(self.model, engine, batch, inputs[0].array, sigma=self.sigma, draws=draws)
            self.engine, self.batch, self._chosen_for = choice.engine, choice.batch, draws

    def _executor(
        self,
        inputs: list[Input],
        at_most: int | None = None,
        map_scores: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> Executor:
        """Sampling with the chosen batch, or a smaller one where fewer rows than that are wanted at a time."""
        assert isinstance(self.batch, int)
        return Executor(
            self.engine,
            inputs.__getitem__,
            noise=self.noise,
            num_classes=self.num_classes,
            seed=self.seed,
            batch=self.batch if at_most is None else min(self.batch, at_most),
            shares=map_scores,
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
