"""SmoothedClassifier: the few lines most users ever call."""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.certificate import ESTIMATED, PROVED, Certificate, certificates
from smoothcert.certification import Care, certify_into
from smoothcert.certification.cost import Cost, draws_per_second
from smoothcert.certification.drawing import OnProgress, collect
from smoothcert.certification.first_pass import OnRead
from smoothcert.certification.planning import (
    constants_of,
    is_coarse,
    job_of,
    noise_error,
    noise_of,
    open_machine,
    require_precision,
    require_separate_rows,
    returns_scores,
)
from smoothcert.certification.quantising import quantise_once, spread
from smoothcert.checks import MOST_DRAWS, check_level, check_whole, less_error
from smoothcert.data import as_dataset, as_floats, raw_array
from smoothcert.errors import InputError
from smoothcert.lipschitz.constant import local_constants
from smoothcert.modules import Model
from smoothcert.options import AUTO, keywords, make, split
from smoothcert.plan import Classifier, Cluster, Duels, Labels, Plan, Question, Selection, Setting, Slopes, Tally
from smoothcert.plan.schedules import Fixed, Schedule
from smoothcert.plan.setting import fresh_seed
from smoothcert.plan.slopes import between
from smoothcert.sampling.blocks import BLOCK, Input, Phase, input_digest
from smoothcert.sampling.choice import ThisProcess, here
from smoothcert.sampling.engines import Engine, Engines, name_of
from smoothcert.sampling.identity import Identity
from smoothcert.store.file import RunFile
from smoothcert.store.run import Run

logger = logging.getLogger(__name__)
FAR_MORE = 10
"""Times more draws than an engine was chosen for, which may pay for a faster one."""


class SmoothedClassifier:
    """The classifier that returns the class its base model's votes elect under N(0, σ² I) noise on the input.

    `model` is a torch module, the path of an .onnx file, or any callable from a float32 NumPy batch to scores (N, c)
    or labels (N,). Noise is added to the input as given: normalisation belongs inside the model. An input is an array,
    a tensor or a Pillow image: floats stay as they are, uint8 becomes value / 255, channels first. Its noise depends on
    `seed` and on its values alone, so every answer can be computed again. Unless it is given, `seed` is drawn here,
    when the model exists already: one that knows the seed could recognise its noise.

    `votes` are part of the classifier: a draw is a duel between the scores of any two classes (`Duels()`, unless the
    model returns labels), won in part where they are close (`Margins(width)`), votes for one class (`Labels()`), or its
    vote is divided by `Softmax` or `Sparsemax` of the scores. Whatever is certified, predicted or attacked is the
    classifier with these votes.

    `noise="gaussian"` adds float32 noise in float32, whereas the theorem is about real numbers: a model built to look
    at the last bits of its input can obtain a certificate that is false. `noise="grid"` leaves no such bits: the
    smoothed classifier rounds x + noise to multiples of 1/`levels` (1/255 unless given: 8-bit images), and what is
    drawn is exact up to a proved error, which is taken off α. It certifies inputs on that grid, and predicts for all.
    """

    @keywords(Classifier, Setting)
    def __init__(self, model: Model | Engines, **given: Any) -> None:
        computing, smoothing = split(given, Setting, Classifier)
        self.classifier, self.setting = make(Classifier, smoothing), make(Setting, computing)
        if self.classifier.is_bare:
            raise InputError("a smoothed classifier has noise: give `sigma`, or use LipschitzClassifier without.")
        self.seed = fresh_seed() if self.setting.seed is None else self.setting.seed
        self._votes_open = smoothing.get("votes") in (None, AUTO)
        self._engines = model if isinstance(model, Engines) else Engines(model)
        self._machine = here(self._engines, str(self.setting.engine), 0, "")
        self._chosen_for, self._separate_at = 0, set[tuple[Identity, int]]()
        self.drawn = 0  # forward passes so far, but for those into run files
        self._counted: defaultdict[str, int] = defaultdict(int)
        self._changing = Lock()
        self.noise = noise_of(self.classifier)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: all but open engines and locks; the copy opens the engine that was chosen here."""
        with self._changing:
            state = {**vars(self), "_counted": self._counted.copy()}
        machine = state["_machine"]
        state["_machine"] = (name_of(machine.identity), machine.batch, machine.reason)
        del state["_changing"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        machine = here(state["_engines"], *state["_machine"])
        vars(self).update(state, _machine=machine, _changing=Lock())

    @property
    def model(self) -> Model:
        return self._engines.model

    @property
    def sigma(self) -> float:
        return self.classifier.sigma

    @property
    def num_classes(self) -> int:
        return self.classifier.num_classes

    @property
    def engine(self) -> Engine:
        """The engine in use; "auto" chooses one when the first draws are wanted."""
        return self._machine.engine

    @keywords(Question)
    def certify(self, x: Any, question: Question | None = None, **given: Any) -> Certificate:
        """The radius around x within which, at risk α, the smoothed classifier provably keeps its class.

        Asked by a `Question`, or by its keywords: n0 draws select the class, n further draws prove the radius; with
        `radii` or `width` as many as are needed.
        """
        return self.certify_batch([x], question, **given)[0]

    @keywords(Question)
    def certify_batch(self, xs: Sequence[Any], question: Question | None = None, **given: Any) -> list[Certificate]:
        """One certificate for each of xs; α is the risk of each single one.

        With `radii` the certified radius is the largest of them that is claimed, with `width` the draws end when the
        radius is within that share of what max_n draws would prove, and the certificate's n is the number of draws
        used. `futility` costs certificates, never validity. With a `lipschitz` constant that is local the basis is
        *estimated*, and nothing is proved.
        """
        asked = self._question(question, given)
        inputs = [as_input(x) for x in xs]
        if not inputs:
            return []
        for source in inputs:
            self.noise.check(source.array, source.id)
        error = noise_error(self.classifier, asked, inputs[0].array.size)
        asked = asked.about(self._settle(inputs[0].array.shape))
        slopes = self._slopes(inputs, asked)
        machine = self._choose_engine(inputs, asked.n0 + asked.draws.expected, exact=asked.lipschitz is not None)
        require_precision(asked, machine.identity)
        level = less_error(asked.alpha, error)
        schedule = asked.schedule(self.classifier, level, len(inputs))
        tally = self._collect(machine, inputs, schedule, Phase.ESTIMATION)
        basis = ESTIMATED if asked.source == "local" else PROVED
        return certificates(
            self.classifier,
            asked,
            tally,
            noise_error=error,
            slopes=slopes,
            basis=basis,
            engine=machine.identity,
        )

    @keywords(Question, Selection)
    def certify_dataset(
        self,
        data: Any,
        question: Question | None = None,
        *,
        out: str | Path,
        cluster: Cluster | None = None,
        images: bool = True,
        model_name: str | None = None,
        check_determinism: bool = False,
        verify_engine: bool = False,
        on_progress: OnProgress = lambda draws, done: None,
        on_read: OnRead = lambda inputs, done: None,
        **given: Any,
    ) -> Run:
        """Certifies the selected inputs of `data` into the run file `out`.

        Called again with the same arguments it goes on where it was stopped, and ends with the votes of a run that was
        never stopped. `data` is a data set of `smoothcert.data`, a path, or a torch map-style data set.

        First every selected input is read, checked, and its hash and label kept; all that are broken are told at once,
        and refused unless `skip_broken`. A call that is refused leaves no file.

        Parts of a run that are certified by `shard` are joined by `store.shards.merge_runs`. With a `cluster` its
        workers draw, and this process writes. Thumbnails are kept as `images`. `check_determinism` draws some votes
        again at the end, in other batches: if they come out otherwise, because the model is random or its rows see each
        other, the run certifies nothing. Engine and batch are measured unless the classifier was given them, and kept
        in the file with the seed: a resumed run uses them again.
        """
        selecting, asking = split(given, Selection, Question)
        dataset = as_dataset(data)
        selection, asked = make(Selection, selecting).of(dataset), self._question(question, asking)
        classifier = self._settle(dataset.shape, RunFile.plan_of(Path(out)))
        setting = dataclasses.replace(self.setting, cluster=cluster)
        plan = Plan(classifier, asked.about(classifier), setting, selection)
        care = Care(images, model_name, check_determinism, verify_engine, on_progress, on_read)
        run = certify_into(Path(out), self._engines, dataset, plan, self.seed, care)
        self.classifier = self.classifier.as_in(run.plan.classifier)
        if run.hint:
            logger.warning(run.hint)
        return run

    @keywords(Question, Selection)
    def cost(self, data: Any, question: Question | None = None, **given: Any) -> Cost:
        """What `certify_dataset` would take: how many draws, and how long on this machine. Nothing is kept."""
        selecting, asking = split(given, Selection, Question)
        dataset = as_dataset(data)
        selection, asked = make(Selection, selecting).of(dataset), self._question(question, asking)
        source = as_input(dataset[selection.rows(dataset)[0]].array)
        classifier = self._settle(dataset.shape)
        plan = Plan(classifier, asked.about(classifier), self.setting, selection)
        rows = selection.rows(dataset)
        quantise_once(self._engines, self.setting, self.sigma, lambda: spread(dataset, rows))
        self._choose_engine([source], Cost.of(plan, None).draws, exact=asked.lipschitz is not None)
        timed = dataclasses.replace(classifier, votes=Duels()) if classifier.votes.is_open else classifier
        job = job_of(timed, self.setting.settled(self.engine.identity, self._machine.batch, self.seed))
        return Cost.of(plan, draws_per_second(self._machine, lambda _: source, job))

    def predict(self, x: Any, *, alpha: float = Question.alpha, max_n: int = 1_000) -> int:
        """The smoothed classifier's class at x, or ABSTAIN; wrong with probability at most α.

        Duels are drawn until the class is known, other votes max_n times.
        """
        return self.predict_batch([x], alpha=alpha, max_n=max_n)[0]

    def predict_batch(self, xs: Sequence[Any], *, alpha: float = Question.alpha, max_n: int = 1_000) -> list[int]:
        """`predict` for each of xs."""
        check_level(alpha)
        check_whole("max_n", max_n, 1, MOST_DRAWS)
        inputs = [as_input(x) for x in xs]
        if not inputs:
            return []
        for source in inputs:
            self.noise.check_size(source.array, source.id)
        level = less_error(alpha, self.noise.error(max_n * inputs[0].array.size))
        kind = self._settle(inputs[0].array.shape).votes
        schedule = kind.predicting(len(inputs), max_n, level, self.num_classes)
        machine = self._choose_engine(inputs, max_n)
        return [int(k) for k in kind.predict(self._collect(machine, inputs, schedule, Phase.PREDICT), level)]

    def count(self, x: Any, n: int) -> NDArray[Any]:
        """The label votes of n draws at x, shape (c,); of shares the sums, of margins those in each class's hardest
        duel. Further calls draw further noise: no draw is counted twice. A copy of the classifier, in another process
        too, counts on from where it was copied: its draws are those that the original makes next, so do not add the two
        up."""
        source = as_input(x)
        self.noise.check_size(source.array, source.id)
        kind = self._settle(source.array.shape).votes
        machine = self._choose_engine([source], check_whole("n", n, 1, MOST_DRAWS))
        with self._changing:
            start = self._counted[source.id]
            draws = start * BLOCK + n
            self._counted[source.id] = -(-draws // BLOCK)
        schedule = Fixed(inputs=1, draws={Phase.COUNT: draws}, start=start)
        votes: NDArray[Any] = kind.total(self._collect(machine, [source], schedule, Phase.COUNT))[0]
        return votes

    def _settle(self, shape: tuple[int, ...], earlier: Plan | None = None) -> Classifier:
        """The classifier with its votes: where none were asked for, labels if the model returns labels for inputs of
        this shape, or if a run that is gone on with has them; else duels."""
        by_labels = dataclasses.replace(self.classifier, votes=Labels())
        if self._votes_open and earlier is not None and earlier.classifier.votes == Labels():
            return by_labels
        if self._votes_open and not returns_scores(self._engines, shape):
            self.classifier = by_labels
        self._votes_open = False
        return self.classifier

    def _question(self, question: Question | None, given: dict[str, Any]) -> Question:
        said = [name for name, value in given.items() if value is not None]
        if question is not None and said:
            raise InputError(f"`{min(said)}` is part of a question, and a whole one is given: leave one of them out.")
        return Question.of(**given) if question is None else question

    def _slopes(self, inputs: list[Input], question: Question) -> Slopes | None:
        """How steep the scores are near each input, where that is given, proved or estimated."""
        constant, pairs = constants_of(question, self.model, inputs[0].array)
        if question.source == "local":
            arrays, shares = [source.array for source in inputs], self.classifier.votes.shares
            return Slopes(local_constants(self.model, arrays, shares), of_shares=shares is not None)
        known = None if constant is None else np.full(len(inputs), constant)
        return None if known is None else Slopes(known, between(pairs, self.num_classes))

    def _choose_engine(self, inputs: list[Input], draws: int, exact: bool = False) -> ThisProcess:
        """Engine and batch for so many draws of each input: chosen once, and again where far more are wanted, or where
        it has to be `exact` and a coarser one was taken."""
        measured, draws = self.setting.engine == "auto" and isinstance(self.model, torch.nn.Module), draws * len(inputs)
        with self._changing:
            unfit = draws >= FAR_MORE * self._chosen_for or (exact and is_coarse(self._machine.identity))
            if not self._chosen_for or (measured and unfit):
                xs = [source.array for source in inputs]
                quantise_once(self._engines, self.setting, self.sigma, lambda: xs)
                machine = open_machine(self._engines, self.classifier, self.setting, inputs[0].array, draws, exact)
                assert isinstance(machine, ThisProcess)
                self._machine, self._chosen_for = machine, draws
            return self._machine

    def _collect(self, machine: ThisProcess, inputs: list[Input], schedule: Schedule, last: Phase) -> Tally:
        """The votes that a schedule wants, with the chosen engine and batch, or a smaller one where fewer rows than
        that are wanted at a time."""
        at_most = schedule.step * len(inputs) if schedule.step else machine.batch
        setting = self.setting.settled(machine.identity, min(machine.batch, at_most), self.seed)
        job = job_of(self.classifier, setting)
        if (machine.identity, job.batch) not in self._separate_at:
            require_separate_rows(self.model, machine, inputs[0], job)
            self._separate_at.add((machine.identity, job.batch))
        tally = collect(machine.executor(inputs.__getitem__, job), schedule, self.classifier, len(inputs), last)
        with self._changing:
            self.drawn += int(tally.draws.sum())
        return tally


def as_input(x: Any) -> Input:
    """x as a float32 array with its hash for an id. An Input stays itself.

    Arrays, tensors and Pillow images follow the rule of data sets: of uint8 the values become k/255, channels first,
    floats stay as they are. Other integers, NaN and infinities are refused.
    """
    if isinstance(x, Input):
        return x
    try:
        raw = raw_array(x.detach().cpu() if isinstance(x, torch.Tensor) else x)
        if raw.dtype.kind not in "biuf":
            raise TypeError
        array = np.ascontiguousarray(as_floats(raw))
    except InputError as error:
        raise InputError(f"an input {error}") from error
    except (TypeError, ValueError):
        raise InputError(
            f"an input must be an array or a tensor of numbers or a Pillow image, got {type(x).__name__}."
        ) from None
    if array.size == 0 or not np.isfinite(array).all():
        raise InputError("an input is empty or has NaN or infinite values: repair it before certifying.")
    return Input(input_digest(array), array)
