"""The paper's counter-example to α/2, computed exactly: what fails is the rival fixed in advance, not the α/2."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from smoothcert.bounds import METHODS
from smoothcert.bounds.binomial import lower_quantile, upper_quantile
from smoothcert.bounds.method import Counts, MarginBound
from smoothcert.experiments.coverage import claims_of, coverage, worst_case
from smoothcert.experiments.reproduction import Result, Stage

P, N, MORE, ALPHA = (0.5, 0.05, 0.45), 10, 40, 0.05


def fixed_rival(selections: Counts, estimations: Counts, alpha: float) -> MarginBound:
    """Wrong on purpose: class 1 is taken for the runner-up before any draw, at α/2 and α/2."""
    n = estimations.sum(axis=1)
    lower = lower_quantile(estimations[:, 0], n, alpha / 2)
    return MarginBound(lower - upper_quantile(estimations[:, 1], n, alpha / 2))


@dataclass(frozen=True)
class Row:
    """The probability of a right statement at the paper's p for 10 and for 40 draws, and the smallest over all p."""

    method: str
    coverage: float
    coverage_of_more: float
    worst: float
    worst_p: tuple[float, ...]


TESTED = {
    "rival fixed in advance, α/2": fixed_rival,
    "largest upper bound, α/2 (union)": METHODS["union"],
    "α/c (bonferroni)": METHODS["bonferroni"],
    "cpm": METHODS["cpm"],
    "pairwise": METHODS["pairwise"],
}


def counter_example() -> list[Row]:
    """Exact coverage of each method for p = (0.5, 0.05, 0.45), n = 10 and 40, α = 0.05, and at its worst p."""
    rows = []
    for name, method in TESTED.items():
        claims = claims_of(method, ALPHA)
        worst, worst_p = worst_case(claims, N, len(P))
        few, more = (float(coverage(claims, P, n)[0]) for n in (N, MORE))
        rows.append(Row(name, few, more, worst, tuple(worst_p.tolist())))
    return rows


def reproduce_counter_example(stage: Stage) -> Result:
    """The table of `counter_example`, a cross where the coverage falls short of 1 − α."""
    found = counter_example()
    rows = []
    for row in found:
        shares = row.coverage, row.coverage_of_more, row.worst
        cells = (f"{share:.3f}" + ("" if share >= 1 - ALPHA else " ✗") for share in shares)
        rows.append((row.method, *cells, ", ".join(f"{v:.2f}" for v in row.worst_p)))
    return Result(
        title=f"Exact probability that the claimed radius is right, p = {P}, α = {ALPHA} (wanted: {1 - ALPHA})",
        columns=("method", f"p, n={N}", f"p, n={MORE}", f"worst p, n={N}", "worst p"),
        rows=rows,
        numbers={"p": P, "alpha": ALPHA, "n": [N, MORE], "methods": [asdict(row) for row in found]},
    )
