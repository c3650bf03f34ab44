"""Tables for papers: rows are runs or methods, columns are radii, the best of each column in bold."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothcert.certificate import ESTIMATED, PROVED
from smoothcert.report.paired import Paired
from smoothcert.report.series import Series
from smoothcert.text import csv_cell

LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "σ": r"$\sigma$",
    "α": r"$\alpha$",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}


@dataclass(frozen=True)
class Row:
    """A series in figures: certified accuracy at radius 0 and at each radius, the average radius, abstentions."""

    name: str
    shares: list[float]
    average_radius: float
    abstained: float


def markdown(series: Sequence[Series], radii: NDArray[np.float64], rho: float, paired: Paired | None) -> str:
    """The tables, what they hold for, and for two runs the paired comparison."""
    head = ["", "any radius", *(f"r = {r:g}" for r in radii), "average radius", "abstained"]
    parts = []
    for basis, members in _by_basis(series):
        rows = _rows(members, radii)
        lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
        lines += [
            [_markdown(row.name), *cells] for row, cells in zip(rows, _cells(rows, "{} %", "**{}**"), strict=True)
        ]
        parts.append(f"Certified accuracy, {basis}:\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))
        parts.append("\n".join(f"- {_markdown(names)}: {claim}" for names, claim in _statements(members, rho)))
    if paired:
        first, second = map(_markdown, paired.names)
        parts.append(f"Paired on {paired.inputs} common inputs: {larger(paired)}")
        lines = [["radius", f"only {first}", f"only {second}", "p (exact McNemar)"], ["---:"] * 4]
        lines += [
            [f"{r:g}", str(len(c.first)), str(len(c.second)), f"{c.p:.2g}"]
            for r, c in zip(paired.radii, paired.certified, strict=True)
        ]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        parts += [
            f"Inputs that only {name} certifies at {r:g}: {', '.join(map(_markdown, ids))}"
            for r, c in zip(paired.radii, paired.certified, strict=True)
            for name, ids in ((first, c.first), (second, c.second))
            if ids
        ]
    return "\n\n".join(parts) + "\n"


def latex(series: Sequence[Series], radii: NDArray[np.float64], rho: float, paired: Paired | None) -> str:
    r"""The same as `tabular`s for \usepackage{booktabs}; the statements become comments."""
    parts = []
    for basis, members in _by_basis(series):
        rows = _rows(members, radii)
        head = ["", "any $r$", *(f"$r = {r:g}$" for r in radii), "average $r$", "abstained"]
        body = [
            " & ".join([_latex(row.name), *cells])
            for row, cells in zip(rows, _cells(rows, r"{}\,\%", r"\textbf{{{}}}"), strict=True)
        ]
        notes = [f"% {_latex(names)}: {claim}" for names, claim in _statements(members, rho)]
        parts.append(
            "\n".join([f"% Certified accuracy, {basis}.", *notes, _tabular("l" + "r" * (len(head) - 1), head, body)])
        )
    if paired:
        head = ["$r$", *(f"only {_latex(name)}" for name in paired.names), "$p$"]
        body = [
            f"{r:g} & {len(c.first)} & {len(c.second)} & {c.p:.2g}"
            for r, c in zip(paired.radii, paired.certified, strict=True)
        ]
        notes = [f"% Paired on {paired.inputs} common inputs, exact McNemar test.", f"% {_latex(larger(paired))}"]
        parts.append("\n".join([*notes, _tabular("rrrr", head, body)]))
    return "\n\n".join(parts) + "\n"


def comma_separated(series: Sequence[Series], radii: NDArray[np.float64], rho: float, paired: Paired | None) -> str:
    """One row a series, all digits. A name that a spreadsheet would take for a formula gets an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(
        ["name", "basis", "method", "sigma", "alpha", "inputs", "draws", "possibly_wrong", "any_radius"]
        + [f"at_{r:g}" for r in radii]
        + ["average_radius", "abstained"]
    )
    for s, row in zip(series, _rows(series, radii), strict=True):
        writer.writerow(
            [
                *(csv_cell(s.name), s.basis, s.method, s.run.plan.sigma, s.alpha, len(s.certificates), s.draws),
                *(s.possibly_wrong(rho), *row.shares, row.average_radius, row.abstained),
            ]
        )
    return out.getvalue()


def larger(paired: Paired) -> str:
    """Whose radii are larger, in a sentence."""
    first, second = paired.names
    contrast = paired.larger
    return (
        f"{first} has the larger certified radius on {len(contrast.first)}, {second} on {len(contrast.second)} "
        f"(sign test, p = {contrast.p:.2g})."
    )


def _by_basis(series: Sequence[Series]) -> list[tuple[str, list[Series]]]:
    """Proved and estimated figures never share a table."""
    groups = [(basis, [s for s in series if s.basis == basis]) for basis in (PROVED, ESTIMATED)]
    return [(basis, members) for basis, members in groups if members]


def _statements(series: Sequence[Series], rho: float) -> list[tuple[str, str]]:
    """What the figures hold for, one input and all of them at once, after the names of the series it is said of."""
    said: dict[str, list[str]] = {}
    for s in series:
        inputs, wrong = len(s.certificates), s.possibly_wrong(rho)
        claim = (
            f"each of the {inputs} certificates is wrong with probability at most {s.alpha:g}; with confidence "
            f"{1 - rho:g} at most {wrong} of them {'is' if wrong == 1 else 'are'}, so that every accuracy less "
            f"{wrong / inputs:.4f} holds for the whole set."
        )
        said.setdefault(claim, []).append(s.name)
    return [(", ".join(names), claim) for claim, names in said.items()]


def _rows(series: Sequence[Series], radii: NDArray[np.float64]) -> list[Row]:
    summaries = [(s.name, s.summary(radii)) for s in series]
    return [Row(name, [u.accuracy, *u.certified.tolist()], u.average_radius, u.abstained) for name, u in summaries]


def _cells(rows: Sequence[Row], percent: str, bold: str) -> list[list[str]]:
    """The figures as text; the best as it is printed is bold, and so is what prints the same."""
    columns = [
        _emphasise(
            [percent.format(f"{100 * row.shares[i]:.1f}") for row in rows], [row.shares[i] for row in rows], bold
        )
        for i in range(len(rows[0].shares))
    ]
    averages = [row.average_radius for row in rows]
    columns.append(_emphasise([f"{a:.3f}" for a in averages], averages, bold))
    columns.append([percent.format(f"{100 * row.abstained:.1f}") for row in rows])
    return [list(cells) for cells in zip(*columns, strict=True)]


def _emphasise(texts: list[str], values: list[float], bold: str) -> list[str]:
    best = texts[int(np.argmax(values))]
    return [bold.format(t) if t == best and len(texts) > 1 else t for t in texts]


def _tabular(columns: str, head: list[str], body: list[str]) -> str:
    rows = "\n".join(f"  {line} \\\\" for line in body)
    return (
        f"\\begin{{tabular}}{{{columns}}}\n  \\toprule\n  {' & '.join(head)} \\\\\n  \\midrule\n{rows}\n"
        f"  \\bottomrule\n\\end{{tabular}}"
    )


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|#~&$])", r"\\\1", " ".join(text.split()))


def _latex(text: str) -> str:
    return "".join(LATEX.get(c, c) for c in " ".join(text.split()))


TABLES: dict[str, Callable[[Sequence[Series], NDArray[np.float64], float, Paired | None], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
}
