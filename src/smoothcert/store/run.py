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
from smoothcert.sampling.blocks import Phase
from smoothcert.store.file import RunFile
from smoothcert.store.schema import Info, Plan

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Tally:
    """The votes of the inputs whose draws are complete, a row each."""

    ids: list[str]
    labels: NDArray[np.int64]
    seconds: NDArray[np.float64]
    selections: NDArray[np.int64]
    estimations: NDArray[np.int64]


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

    @cached_property
    def tally(self) -> Tally:
        """Every stored row, checked: checksums, totals, and no block counted twice."""
        with RunFile.open_to_read(self.path) as file:
            inputs = file.inputs()
            index = {position: i for i, (position, *_) in enumerate(inputs)}
            shape = (len(inputs), self.plan.num_classes)
            counts = {p.value: np.zeros(shape, dtype=np.int64) for p in (Phase.SELECTION, Phase.ESTIMATION)}
            seconds = np.zeros(len(inputs))
            reached: dict[tuple[int, str], int] = {}
            for row in file.rows():
                key = (row.position, row.phase)
                if (
                    row.first < reached.get(key, 0)
                    or row.position not in index
                    or row.phase not in counts
                    or row.classes.max() >= self.plan.num_classes
                ):
                    raise RunError(f"{self.path} has rows that contradict each other: certify again into a new file.")
                reached[key] = row.last
                counts[row.phase][index[row.position], row.classes] += row.counts
                seconds[index[row.position]] += row.seconds
            for position, _, _, spent in file.radii():
                seconds[index[position]] += spent
        selections, estimations = counts.values()
        complete = (
            np.ones(len(inputs), dtype=bool)
            if self.info.radii_only
            else (selections.sum(axis=1) == self.plan.n0) & (estimations.sum(axis=1) == self.plan.n)
        )
        return Tally(
            ids=[id for (_, id, _, _), keep in zip(inputs, complete, strict=True) if keep],
            labels=np.array([label for *_, label, _ in inputs], dtype=np.int64)[complete],
            seconds=seconds[complete],
            selections=selections[complete],
            estimations=estimations[complete],
        )

    def certificates(self, method: str | None = None, alpha: float | None = None) -> list[Certificate]:
        """One certificate a complete input, by the declared method and level unless told otherwise."""
        if self.info.radii_only:
            return self._imported(method, alpha)
        if not len(self):
            return []
        return certify_counts_batch(
            self.tally.selections,
            self.tally.estimations,
            sigma=self.plan.sigma,
            alpha=self.plan.alpha if alpha is None else alpha,
            method=self.plan.method if method is None else method,
            noise=self.plan.noise,
        )

    def _imported(self, method: str | None, alpha: float | None) -> list[Certificate]:
        """The radii of a log that holds no votes, as they were printed."""
        plan = self.plan
        if (method or plan.method, alpha or plan.alpha) != (plan.method, plan.alpha):
            raise InputError(
                f"{self.path} was imported from a log that holds radii and no votes: there is nothing to compute again."
            )
        with RunFile.open_to_read(self.path) as file:
            return [
                Certificate(k, radius, plan.sigma, plan.alpha, plan.method, plan.noise, PROVED, plan.n0, plan.n)
                for _, k, radius, _ in file.radii()
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
