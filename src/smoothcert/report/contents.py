"""What a report tells, in whatever form it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.options import option
from smoothcert.report.baselines import Baseline, baseline
from smoothcert.report.curves import Curve, firsts, gather, table_radii
from smoothcert.report.paired import Paired, pair, same_inputs
from smoothcert.store.run import Run
from smoothcert.summary import Summary, possibly_wrong, summary_at


def words(text: str) -> list[str]:
    """What commas separate."""
    return [part.strip() for part in text.split(",")]


@dataclass(frozen=True)
class Wanted:
    """What runs are asked to tell."""

    methods: Sequence[str] | None = option(
        None,
        help="Methods, separated by commas; unless given the declared one, for one run beside the others.",
        parse=words,
    )
    alpha: float | None = option(None, help="Risk per input; the declared one unless given.")
    rho: float = option(0.001, help="Risk of the statement on the whole set.")
    radii: Sequence[str | float] | None = option(None, help="Radii of the table, separated by commas.", parse=words)
    names: Sequence[str] | None = option(None, help="Names of the runs, separated by commas.", parse=words)
    baseline: str | None = option(None, help="Lay published figures over the curves: cohen-cifar10.")
    estimated: bool = option(False, help="Also what rests on an estimated Lipschitz constant: that is no proof.")

    def __post_init__(self) -> None:
        if not 0 < self.rho < 1:
            raise InputError(f"rho must lie strictly between 0 and 1, got {self.rho!r}: 0.001 is the usual choice.")

    def of(self, runs: Sequence[Run]) -> Contents:
        """What these runs tell."""
        curves = gather(runs, self.methods, self.alpha, self.names or (), self.estimated)
        published = None if self.baseline is None else baseline(self.baseline)
        radii = published.radii if published and self.radii is None else self.radii
        return Contents(curves, table_radii(curves) if radii is None else _positive(radii), self.rho, published)


@dataclass(frozen=True)
class Contents:
    """Curves, the radii at which tables give them, the risk ρ of what is said of a whole set of inputs, and published
    figures beside them."""

    curves: Sequence[Curve]
    radii: NDArray[np.float64]
    rho: float = 0.001
    baseline: Baseline | None = None

    @cached_property
    def summaries(self) -> list[Summary]:
        """Each curve in figures."""
        return [summary_at(self.radii, c.won, c.certificates) for c in self.curves]

    @cached_property
    def comparable(self) -> bool:
        """Are all runs on the same inputs with the same labels? Others are shown and not ranked."""
        return same_inputs([c.run for c in firsts(self.curves)])

    @property
    def remarks(self) -> list[str]:
        """Why no run is called the best, and where published figures come from."""
        said = [] if self.comparable else ["The runs are on different inputs or labels: they are not compared."]
        return said + ([] if self.baseline is None else [f"Published, not computed here: {self.baseline.source}."])

    @cached_property
    def paired(self) -> Paired | None:
        """The comparison of two runs on the same inputs, where that is what they are."""
        return pair(self.curves, self.radii)

    def possibly_wrong(self, curve: Curve) -> int:
        """How many of its certificates may be wrong, at risk ρ."""
        return possibly_wrong(len(curve.certificates), curve.alpha, self.rho)


def _positive(radii: Sequence[str | float]) -> NDArray[np.float64]:
    try:
        values = np.array([float(r) for r in radii])
    except ValueError:
        values = np.array([-1.0])
    if not (np.isfinite(values) & (values > 0)).all():
        raise InputError("the radii of a table are positive numbers, such as 0.25,0.5,1.")
    return values
