"""A run as its reader sees it: votes, certificates, tables."""

from __future__ import annotations

import logging
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.method import candidates
from smoothcert.certificate import ESTIMATED, PROVED, Certificate, certificates
from smoothcert.checks import check_level, check_number, less_error
from smoothcert.errors import InputError, RunError
from smoothcert.plan import SHARES, Plan, Slopes, Tally
from smoothcert.sampling.blocks import Claim
from smoothcert.sampling.identity import Identity
from smoothcert.store.counts import check_size
from smoothcert.store.file import RunFile
from smoothcert.store.opening import damaged
from smoothcert.store.patience import PATIENCE, wait_for
from smoothcert.store.schema import Info, InputRecord
from smoothcert.summary import Accuracies, certified_radii
from smoothcert.text import counted

if TYPE_CHECKING:
    import pandas

logger = logging.getLogger(__name__)
RADII_ONLY = "was imported from a log that holds radii and no votes"


class Run:
    """A stored run, read without its model. Inputs whose draws are not complete are left out until they are.

    Bounds that take more than `patience` seconds of a processor are refused, after about one.
    """

    def __init__(self, path: str | Path, *, patience: float = PATIENCE) -> None:
        self.path, self.patience = Path(path), check_number("patience", patience)
        if not self.patience >= 0:
            raise InputError(f"patience must be a number of seconds, got {patience!r}: 10 is the usual choice.")
        with RunFile.open_to_read(self.path) as file:
            if file.plan is None:
                raise InputError(f"{path} holds no run: certify into it first.")
            self.plan: Plan = file.plan
            self.info: Info = file.info
            self.rejected = file.rejected
            self.opened = file.opened
        self._known: dict[tuple[str, float, bool, bool], list[Certificate]] = {}

    def file(self) -> RunFile:
        """The file, opened again; one that has taken its place meanwhile is refused."""
        return RunFile.open_to_read(self.path, self.opened)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {len(self)} of {counted(self.plan.selection.total, 'input')})"

    def _repr_html_(self) -> str:
        from smoothcert.store.notebook import run_html

        return run_html(self)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def inputs(self) -> list[InputRecord]:
        """The inputs whose draws are complete."""
        return self._complete[0]

    @property
    def tally(self) -> Tally:
        """The votes of every complete input, all rows checked on the way."""
        return self._complete[1]

    @property
    def constants(self) -> NDArray[np.float64]:
        """The estimated constants near each complete input, of shares or scores as the plan's `local_of` says, NaN
        where one is not there yet."""
        return self._complete[2]

    @cached_property
    def ids(self) -> list[str]:
        return [record.id for record in self.inputs]

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        return np.array([record.label for record in self.inputs], dtype=np.int64)

    @cached_property
    def clean(self) -> NDArray[np.int64]:
        """The model's class of each complete input without noise, -1 where it is not known."""
        with self.file() as file:
            known = file.clean()
        return np.array([known.get(record.position, -1) for record in self.inputs], dtype=np.int64)

    @cached_property
    def accuracies(self) -> Accuracies:
        """Of the model alone, under noise, and smoothed, by the votes of the complete inputs."""
        clean = float((self.clean == self.labels).mean()) if len(self) and (self.clean >= 0).all() else None
        if self.voteless or not len(self):
            return Accuracies(clean, None, None)
        selections, others = self.tally.selections, self.tally.others
        chosen = candidates(selections) if others is None else others.candidates
        known = (self.labels >= 0) & (self.labels < self.plan.classifier.num_classes)
        right = np.where(known, selections[np.arange(len(self)), np.where(known, self.labels, 0)], 0)
        noisy = float((right / selections.sum(axis=1).clip(1)).mean())
        return Accuracies(clean, noisy, float((chosen == self.labels).mean()))

    @property
    def hint(self) -> str | None:
        """What to do where the run is no better than chance, or noise takes a third of the accuracy."""
        return self.accuracies.hint(len(self), self.plan.classifier.num_classes)

    @property
    def finished(self) -> bool:
        return len(self) == self.plan.selection.total

    @property
    def draws(self) -> int:
        """Forward passes behind the complete inputs; of an imported log without votes those that it declares."""
        if self.info.radii_only:
            return len(self) * self.plan.question.n0 + sum(claim.n for claim in self.tally.claims or [])
        return int(self.tally.draws.sum())

    @property
    def claimed(self) -> bool:
        """Were the radii claimed (an adaptive run, one without noise, an imported log), not computed from the votes?"""
        return self.info.radii_only or bool(self.plan.question.draws.final)

    @property
    def voteless(self) -> bool:
        """Are there radii only: without noise, or in an imported log?"""
        return self.info.radii_only or self.plan.classifier.is_bare

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods for the classifier that was certified, the declared one among them."""
        return (self.plan.question.method,) if self.claimed else tuple(self.plan.classifier.votes.methods)

    @cached_property
    def compared(self) -> tuple[str, ...]:
        """The methods that are shown side by side, those for labels that are kept beside duels among them; without
        those that take too long, but for the declared one."""
        if self.claimed:
            return self.methods
        declared, compared = self.plan.question.method, self.plan.classifier.votes.compared
        long = {m: said for m in compared if m != declared and (said := self.too_long(m))}
        for said in long.values():
            logger.info("left out: %s", said)
        return tuple(m for m in compared if m not in long)

    def called(self, method: str) -> str:
        """The method's name, which says so where it is about another classifier than the run: that of the labels."""
        return f"{method} (labels)" if method in self.plan.classifier.votes.beside else method

    @cached_property
    def _complete(self) -> tuple[list[InputRecord], Tally, NDArray[np.float64]]:
        plan = self.plan
        with self.file() as file:
            inputs, claims = file.inputs(), {claim.position: claim for claim in file.claims()}
            wanted, drawn = self._wanted(inputs, claims), file.draws()
            kept = [r for r, draws in zip(inputs, wanted, strict=True) if drawn.get(r.position, (0, 0)) == draws]
            check_size(self.path, len(kept), plan.classifier.num_classes)
            known, positions = (np.array([r.position for r in rs], dtype=np.int64) for rs in (inputs, kept))
            complete, constants = file.tally(known, positions), file.constants()
            file.check_claims(claims.values())
        if self.claimed:
            complete.claims = [claims[record.position] for record in kept]
        if self.voteless:
            complete.seconds = np.array([claim.seconds for claim in complete.claims or []])
        others = complete.others
        if others and (others.candidates != others.named)[complete.draws[1] > 0].any():
            raise RunError(damaged(self.path, "draws for a class that the selection did not choose"))
        return kept, complete, np.array([constants.get(record.position, np.nan) for record in kept])

    def _wanted(self, inputs: list[InputRecord], claims: dict[int, Claim]) -> list[tuple[int, int]]:
        """How many draws of the two samples make each input complete."""
        if self.info.radii_only:
            if claims.keys() != {record.position for record in inputs}:
                raise RunError(damaged(self.path, "inputs without a radius"))
            return [(0, 0)] * len(inputs)
        n0, most = self.plan.question.n0, self.plan.question.draws.most
        ends = [(claims[r.position].n if r.position in claims else -1) if self.claimed else most for r in inputs]
        return [(n0, end) for end in ends]

    def certificates(
        self, method: str | None = None, alpha: float | None = None, *, estimated: bool = False, plain: bool = False
    ) -> list[Certificate]:
        """One certificate a complete input, by the declared method and level unless told otherwise; computed once.

        With soft votes, a method for labels certifies the classifier of the labels, which is another one. A proved
        Lipschitz constant is used unless `plain`; estimated ones only where `estimated` is asked for.
        """
        if self.rejected:
            raise RunError(f"{self.path} certifies nothing: {self.rejected}")
        question = self.plan.question
        method, alpha = question.method if method is None else method, question.alpha if alpha is None else alpha
        asked = str(method), alpha if alpha == question.alpha else check_level(alpha), estimated, plain
        if asked not in self._known:
            self._known[asked] = self._certify(*asked)
        return self._known[asked]

    def _certify(self, method: str, alpha: float, estimated: bool, plain: bool) -> list[Certificate]:
        plan = self.plan
        if self.info.radii_only and (method, alpha) != (plan.question.method, plan.question.alpha):
            raise InputError(f"{self.path} {RADII_ONLY}, so certify again into a new file.")
        try:
            classifier, question = plan.question.again(plan.classifier, method, alpha)
        except InputError as error:
            if plan.question.draws.final:
                raise InputError(f"{self.path} {error}, so certify again into a new file.") from None
            raise
        if said := self.too_long(method, alpha):
            raise InputError(said)
        slopes = None if plain or question.lipschitz is None else self._slopes(estimated)
        if estimated and (slopes is None or not plan.estimates):
            raise InputError(f"{self.path} has no estimates for {method}: certify with `lipschitz` local for them.")
        return certificates(
            classifier,
            question,
            self.tally,
            noise_error=plan.noise_error,
            slopes=slopes,
            basis=ESTIMATED if estimated else PROVED,
            engine=plan.setting.engine if isinstance(plan.setting.engine, Identity) else None,
        )

    def too_long(self, method: str | None = None, alpha: float | None = None) -> str:
        """What to do where the bounds take longer than `patience`; they are kept where they do not."""
        question = self.plan.question
        if (method or question.method) != "pairwise":
            return ""
        level = less_error(question.alpha if alpha is None else alpha, self.plan.noise_error)
        wait = wait_for(self.tally, level, self.patience)
        if wait is None:
            return ""
        return (
            f"bounds by pairwise of {counted(len(self), 'input')} take about {counted(wait, 'second')} of a processor: "
            f"allow them with a `patience` of {wait + wait // 2 + 1}, or recertify by union in a moment."
        )

    def _slopes(self, estimated: bool) -> Slopes | None:
        """How steep the scores are near each input."""
        if not estimated:
            return self.plan.slopes(len(self))
        if np.isnan(self.constants).any():
            raise RunError(f"{self.path} has inputs without an estimated constant yet: let certify finish first.")
        return Slopes(self.constants, of_shares=self.plan.local_of == SHARES)

    def to_pandas(self) -> pandas.DataFrame:
        """A row each complete input: id, label, the facts of its certificate, correct, seconds, and in `clean` the
        class without noise, -1 where that is not known."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_pandas needs pandas: pip install 'smoothcert[pandas]'.") from None
        frame = pandas.DataFrame([c.as_row() for c in self.certificates()])
        frame.insert(0, "id", self.ids)
        frame.insert(1, "label", self.labels)
        frame["correct"] = certified_radii(self.certificates(), self.labels) >= 0
        frame["clean"] = self.clean
        frame["seconds"] = self.tally.seconds
        return frame


def open_run(path: str | Path, *, patience: float = PATIENCE) -> Run:
    """Opens a stored run to read it; no model is needed. Bounds may take `patience` seconds of a processor."""
    return Run(path, patience=patience)
