"""A run as its reader sees it: votes, certificates, tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothcert.certificate import PROVED, Certificate, certify_counts_batch
from smoothcert.errors import InputError, RunError
from smoothcert.sampling.blocks import Claim, Phase
from smoothcert.store.file import RunFile
from smoothcert.store.schema import Info, Plan

if TYPE_CHECKING:
    import pandas

STORED = (Phase.SELECTION, Phase.ESTIMATION)
RADII_ONLY = "was imported from a log that holds radii and no votes"
STOPPED_BY_ITS_VOTES = (
    "stopped drawing when its votes said so: neither a bound for a fixed number of draws nor another alpha is valid on "
    "them"
)


@dataclass(frozen=True)
class Tally:
    """The inputs whose draws are complete, a row each, and what was claimed of them where a rule ended the draws."""

    ids: list[str]
    labels: NDArray[np.int64]
    seconds: NDArray[np.float64]
    selections: NDArray[np.int64]
    estimations: NDArray[np.int64]
    claims: list[Claim]


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

    @cached_property
    def tally(self) -> Tally:
        """Every stored row, checked: checksums, totals, and no block counted twice."""
        with RunFile.open_to_read(self.path) as file:
            inputs, claims = file.inputs(), {claim.position: claim for claim in file.claims()}
            index = {position: i for i, (position, *_) in enumerate(inputs)}
            counts = np.zeros((2, len(inputs), self.plan.num_classes), dtype=np.int64)
            seconds = np.zeros(len(inputs))
            reached: dict[tuple[int, Phase], int] = {}
            for votes in file.votes():
                key = votes.position, votes.phase
                if (
                    votes.position not in index
                    or votes.phase not in STORED
                    or votes.first < reached.get(key, 0)
                    or votes.classes.max() >= self.plan.num_classes
                ):
                    raise RunError(f"{self.path} has rows that contradict each other: certify again into a new file.")
                reached[key] = votes.last
                counts[STORED.index(votes.phase), index[votes.position], votes.classes] += votes.counts
                seconds[index[votes.position]] += votes.seconds
        draws = counts.sum(axis=2)
        if self.info.radii_only:
            wanted = np.zeros_like(draws)
            seconds = np.array([claims[position].seconds for position, *_ in inputs])
        else:
            ends = [claims[p].n if p in claims else -1 for p, *_ in inputs] if self.claimed else self.plan.n
            wanted = np.stack(np.broadcast_arrays(self.plan.n0, np.asarray(ends), draws[0])[:2])
        keep = (draws == wanted).all(axis=0).nonzero()[0]
        return Tally(
            ids=[inputs[i][1] for i in keep],
            labels=np.array([inputs[i][2] for i in keep], dtype=np.int64),
            seconds=seconds[keep],
            selections=counts[0][keep],
            estimations=counts[1][keep],
            claims=[claims[inputs[i][0]] for i in keep] if self.claimed else [],
        )

    def certificates(self, method: str | None = None, alpha: float | None = None) -> list[Certificate]:
        """One certificate a complete input, by the declared method and level unless told otherwise."""
        plan = self.plan
        method, alpha = plan.method if method is None else method, plan.alpha if alpha is None else alpha
        if not self.claimed:
            if not len(self):
                return []
            votes = self.tally.selections, self.tally.estimations
            return certify_counts_batch(*votes, sigma=plan.sigma, alpha=alpha, method=method, noise=plan.noise)
        if (method, alpha) != (plan.method, plan.alpha):
            why = RADII_ONLY if self.info.radii_only else STOPPED_BY_ITS_VOTES
            raise InputError(f"{self.path} {why}, so certify again into a new file.")
        return [
            Certificate(c.prediction, c.radius, plan.sigma, plan.alpha, plan.method, plan.noise, PROVED, plan.n0, c.n)
            for c in self.tally.claims
        ]

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
