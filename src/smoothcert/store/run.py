"""A run as its reader sees it: votes, certificates, tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds import METHODS, SOFT_METHODS, SoftVotes
from smoothcert.certificate import ESTIMATED, PROVED, Certificate, certify_counts_batch, certify_soft_batch
from smoothcert.errors import InputError, RunError
from smoothcert.lipschitz.sources import LOCAL
from smoothcert.sampling.blocks import NO_CANDIDATE, Claim, Phase
from smoothcert.sampling.simplex import HARD
from smoothcert.store.file import RunFile, damaged
from smoothcert.store.schema import Info, Plan

if TYPE_CHECKING:
    import pandas

MOST_COUNTS = 1 << 28
STORED = (Phase.SELECTION, Phase.ESTIMATION)
RADII_ONLY = "was imported from a log that holds radii and no votes"
STOPPED_BY_ITS_VOTES = (
    "stopped drawing when its votes said so: neither a bound for a fixed number of draws nor another alpha is valid on "
    "them"
)


@dataclass(frozen=True)
class Tally:
    """The inputs whose draws are complete, a row each, and what was claimed of them where a rule ended the draws.

    `soft` are the selection and the estimation sample of soft votes; `constants` the estimated local constants of the
    scores, NaN where an input has none yet.
    """

    ids: list[str]
    labels: NDArray[np.int64]
    seconds: NDArray[np.float64]
    selections: NDArray[np.int64]
    estimations: NDArray[np.int64]
    claims: list[Claim]
    soft: tuple[SoftVotes, SoftVotes] | None
    constants: NDArray[np.float64]


class Run:
    """A stored run, read without its model. Inputs whose draws are not complete are left out until they are."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with RunFile.open_to_read(self.path) as file:
            plan = file.plan
            if plan is None:
                raise InputError(f"{path} holds no run: certify into it first.")
            self.plan: Plan = plan
            self.info: Info = file.info
            self.rejected = file.rejected

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {len(self)} of {self.plan.total} inputs)"

    def _repr_html_(self) -> str:
        from smoothcert.report.notebook import run_html

        return run_html(self)

    def __len__(self) -> int:
        return len(self.tally.ids)

    @property
    def ids(self) -> list[str]:
        return self.tally.ids

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.tally.labels

    @property
    def finished(self) -> bool:
        return len(self) == self.plan.total

    @property
    def draws(self) -> int:
        """Forward passes behind the complete inputs."""
        return int(self.tally.selections.sum() + self.tally.estimations.sum())

    @property
    def claimed(self) -> bool:
        """Were the radii claimed as the draws ended (an adaptive run, an imported log), not computed from the votes?"""
        return self.info.radii_only or self.plan.sequential is not None

    @property
    def soft(self) -> bool:
        """Are soft votes kept beside the hard ones?"""
        return self.plan.votes != HARD

    @property
    def estimates(self) -> bool:
        """Are there estimated Lipschitz constants, for radii that are no proof?"""
        return self.plan.lipschitz == LOCAL

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods for the classifier that was certified, the declared one among them."""
        return (self.plan.method,) if self.claimed else tuple(SOFT_METHODS if self.soft else METHODS)

    @property
    def votes_in_words(self) -> str:
        """How soft votes are made, and the Lipschitz constant that goes with them; nothing of hard votes."""
        plan = self.plan
        if not self.soft:
            return ""
        words = f"{plan.votes} of the scores / {plan.temperature:g}"
        if plan.constant is not None:
            words += f"; ℓ2 constant of the scores {plan.constant:.4g} ({plan.lipschitz})"
            words += f", of a share L = {plan.component_constant * plan.constant:.4g}"
        return words + ("; local constants are estimated" if self.estimates else "")

    @cached_property
    def tally(self) -> Tally:
        """The votes of every complete input, all rows checked on the way."""
        with RunFile.open_to_read(self.path) as file:
            inputs, claims = file.inputs(), {claim.position: claim for claim in file.claims()}
            if len(inputs) * self.plan.num_classes > MOST_COUNTS:
                raise InputError(
                    f"{self.path} has {len(inputs)} inputs with {self.plan.num_classes} counts each, above "
                    f"{MOST_COUNTS} in all: certify fewer inputs into one file."
                )
            index = {position: i for i, (position, *_) in enumerate(inputs)}
            counts = np.zeros((2, len(inputs), self.plan.num_classes), dtype=np.int64)
            seconds = np.zeros(len(inputs))
            soft = [SoftVotes.zeros(len(inputs), self.plan.num_classes) for _ in STORED] if self.soft else []
            named = np.full(len(inputs), NO_CANDIDATE)
            constants = file.constants()
            hard = None if self.soft else file.counts(self.plan, np.array(list(index), dtype=np.int64))
            if hard is not None:
                counts, seconds = hard
            for votes in file.votes() if hard is None else ():
                if votes.position not in index:
                    raise RunError(damaged(self.path, f"votes for an unknown input number {votes.position}"))
                counts[STORED.index(votes.phase), index[votes.position], votes.classes] += votes.counts
                seconds[index[votes.position]] += votes.seconds
                if votes.soft is not None:
                    sums = votes.soft.sums, votes.soft.squares, votes.soft.products
                    soft[STORED.index(votes.phase)].add(index[votes.position], votes.draws, *sums)
                    named[index[votes.position]] = max(named[index[votes.position]], votes.soft.candidate)
        draws = counts.sum(axis=2)
        if self.info.radii_only:
            if claims.keys() != index.keys():
                raise RunError(damaged(self.path, "inputs without a radius"))
            wanted = np.zeros_like(draws)
            seconds = np.array([claims[position].seconds for position, *_ in inputs])
        else:
            ends = [claims[p].n if p in claims else -1 for p, *_ in inputs] if self.claimed else self.plan.n
            wanted = np.stack(np.broadcast_arrays(self.plan.n0, np.asarray(ends), draws[0])[:2])
        keep = (draws == wanted).all(axis=0).nonzero()[0]
        samples = (soft[0].rows(keep), soft[1].rows(keep)) if soft else None
        if samples and (samples[0].candidates != named[keep]).any():
            raise RunError(damaged(self.path, "products with a class that the selection did not choose"))
        return Tally(
            ids=[inputs[i][1] for i in keep],
            labels=np.array([inputs[i][2] for i in keep], dtype=np.int64),
            seconds=seconds[keep],
            selections=counts[0][keep],
            estimations=counts[1][keep],
            claims=[claims[inputs[i][0]] for i in keep] if self.claimed else [],
            soft=samples,
            constants=np.array([constants.get(inputs[i][0], np.nan) for i in keep]),
        )

    def certificates(
        self, method: str | None = None, alpha: float | None = None, *, estimated: bool = False, plain: bool = False
    ) -> list[Certificate]:
        """One certificate a complete input, by the declared method and level unless told otherwise.

        With soft votes, a method for hard votes certifies the classifier of the hard votes, which is another one. A
        proved Lipschitz constant is used unless `plain`; estimated ones only where `estimated` is asked for.
        """
        plan = self.plan
        if self.rejected:
            raise RunError(f"{self.path} certifies nothing: {self.rejected}")
        method, alpha = plan.method if method is None else method, plan.alpha if alpha is None else alpha
        if not self.claimed:
            if not len(self):
                return []
            if estimated and not (self.estimates and method in SOFT_METHODS):
                raise InputError(f"{self.path} has no estimates for {method}: certify with --lipschitz local for them.")
            if self.tally.soft is not None and method not in METHODS:
                return self._soft_certificates(*self.tally.soft, method, alpha, self._constants(estimated, plain))
            votes = self.tally.selections, self.tally.estimations
            return certify_counts_batch(
                *votes,
                sigma=plan.sigma,
                alpha=alpha,
                method=method,
                noise=plan.noise,
                noise_error=plan.noise_error,
            )
        if (method, alpha) != (plan.method, plan.alpha):
            why = RADII_ONLY if self.info.radii_only else STOPPED_BY_ITS_VOTES
            raise InputError(f"{self.path} {why}, so certify again into a new file.")
        facts = plan.sigma, plan.alpha, plan.method, plan.noise, PROVED
        return [
            Certificate(c.prediction, c.radius, *facts, plan.n0, c.n, noise_error=plan.noise_error)
            for c in self.tally.claims
        ]

    def _constants(self, estimated: bool, plain: bool) -> NDArray[np.float64] | None:
        """The ℓ2 constant of the scores for each input."""
        if estimated:
            if np.isnan(self.tally.constants).any():
                raise RunError(f"{self.path} has inputs without an estimated constant yet: let certify finish first.")
            return self.tally.constants
        return None if plain or self.plan.constant is None else np.full(len(self), self.plan.constant)

    def _soft_certificates(
        self,
        selection: SoftVotes,
        estimation: SoftVotes,
        method: str,
        alpha: float,
        constants: NDArray[np.float64] | None,
    ) -> list[Certificate]:
        plan = self.plan
        return certify_soft_batch(
            selection,
            estimation,
            sigma=plan.sigma,
            votes=plan.votes,
            alpha=alpha,
            interval=method,
            lipschitz=None if constants is None else plan.component_constant * constants,
            basis=ESTIMATED if constants is self.tally.constants else PROVED,
            noise=plan.noise,
            noise_error=plan.noise_error,
        )

    def to_pandas(self) -> pandas.DataFrame:
        """A row each complete input: id, label, the fields of its certificate, correct, seconds."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_pandas needs pandas: pip install 'smoothcert[pandas]'.") from None
        frame = pandas.DataFrame([asdict(c) for c in self.certificates()])
        frame.insert(0, "id", self.ids)
        frame.insert(1, "label", self.labels)
        frame["correct"] = frame["prediction"] == frame["label"]
        frame["seconds"] = self.tally.seconds
        return frame


def open_run(path: str | Path) -> Run:
    """Opens a stored run to read it; no model is needed."""
    return Run(path)
