"""Tables for papers: rows are runs or methods, columns are radii, the best of each column in bold."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np

from smoothcert.certificate import ESTIMATED, PROVED
from smoothcert.report.contents import Contents
from smoothcert.report.curves import Curve
from smoothcert.report.paired import Paired
from smoothcert.summary import Summary
from smoothcert.text import counted, csv_line

LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "σ": r"$\sigma$",
    "α": r"$\alpha$",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}


def markdown(contents: Contents) -> str:
    """The tables, what they hold for, and for two runs the paired comparison."""
    head = ["", "any radius", *(f"r = {r:g}" for r in contents.radii), "average radius", "abstained"]
    parts = []
    for basis, curves, summaries in _by_basis(contents):
        lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
        cells = _cells(summaries, "{} %", "**{}**" if contents.comparable else "{}")
        lines += [[_markdown(curve.name), *row] for curve, row in zip(curves, cells, strict=True)]
        lines += [[_markdown(name), *row] for name, row in _published(contents, basis, "{} %")]
        parts.append(f"Certified accuracy, {basis}:\n\n{_pipes(lines)}")
        parts.append("\n".join(f"- {_markdown(names)}: {claim}" for names, claim in _statements(contents, curves)))
    parts += map(_markdown, contents.remarks)
    if paired := contents.paired:
        first, second = map(_markdown, paired.names)
        parts.append(f"Paired on {counted(paired.inputs, 'common input')}: {larger(paired)}")
        lines = [["radius", f"only {first}", f"only {second}", "p (exact McNemar)"], ["---:"] * 4]
        lines += [
            [f"{r:g}", str(len(c.first)), str(len(c.second)), f"{c.p:.2g}"]
            for r, c in zip(paired.radii, paired.certified, strict=True)
        ]
        parts.append(_pipes(lines))
        parts += [
            f"Inputs that only {name} certifies at {r:g}: {', '.join(map(_markdown, ids))}"
            for r, c in zip(paired.radii, paired.certified, strict=True)
            for name, ids in ((first, c.first), (second, c.second))
            if ids
        ]
    return "\n\n".join(parts) + "\n"


def latex(contents: Contents) -> str:
    r"""The same as `tabular`s for \usepackage{booktabs}; the statements become comments."""
    parts = []
    for basis, curves, summaries in _by_basis(contents):
        head = ["", "any $r$", *(f"$r = {r:g}$" for r in contents.radii), "average $r$", "abstained"]
        cells = _cells(summaries, r"{}\,\%", r"\textbf{{{}}}" if contents.comparable else "{}")
        body = [" & ".join([_latex(curve.name), *row]) for curve, row in zip(curves, cells, strict=True)]
        body += [" & ".join([_latex(name), *row]) for name, row in _published(contents, basis, r"{}\,\%")]
        notes = [f"% {_latex(names)}: {claim}" for names, claim in _statements(contents, curves)]
        parts.append(
            "\n".join([f"% Certified accuracy, {basis}.", *notes, _tabular("l" + "r" * (len(head) - 1), head, body)])
        )
    parts += [f"% {_latex(remark)}" for remark in contents.remarks]
    if paired := contents.paired:
        head = ["$r$", *(f"only {_latex(name)}" for name in paired.names), "$p$"]
        body = [
            f"{r:g} & {len(c.first)} & {len(c.second)} & {c.p:.2g}"
            for r, c in zip(paired.radii, paired.certified, strict=True)
        ]
        notes = [
            f"% Paired on {counted(paired.inputs, 'common input')}, exact McNemar test.",
            f"% {_latex(larger(paired))}",
        ]
        parts.append("\n".join([*notes, _tabular("rrrr", head, body)]))
    return "\n\n".join(parts) + "\n"


def comma_separated(contents: Contents) -> str:
    """One row a curve, all digits. A name that a spreadsheet would take for a formula gets an apostrophe."""
    heads: list[list[object]] = [
        ["name", "basis", "method", "sigma", "alpha", "inputs", "draws", "possibly_wrong", "any_radius"],
        [f"at_{r:g}" for r in contents.radii],
        ["average_radius", "abstained", "clean", "noisy", "smoothed"],
    ]
    lines = [csv_line(chain.from_iterable(heads))]
    for curve, summary in zip(contents.curves, contents.summaries, strict=True):
        sigma, wrong = curve.run.plan.classifier.sigma, contents.possibly_wrong(curve)
        told = curve.name, curve.basis, curve.method, sigma, curve.alpha, summary.inputs, curve.draws, wrong
        beside = dataclasses.astuple(curve.run.accuracies)
        lines.append(csv_line([*told, *_shares(summary), summary.average_radius, summary.abstained, *beside]))
    for name, known in contents.baseline.rows() if contents.baseline else ():
        lines.append(csv_line([name, "published", *[""] * 7, *(known.get(r, "") for r in contents.radii), *[""] * 5]))
    return "".join(lines)


def larger(paired: Paired) -> str:
    """Whose radii are larger, in a sentence."""
    first, second = paired.names
    contrast = paired.larger
    return (
        f"{first} has the larger certified radius on {len(contrast.first)}, {second} on {len(contrast.second)} "
        f"(sign test, p = {contrast.p:.2g})."
    )


def _by_basis(contents: Contents) -> Iterator[tuple[str, list[Curve], list[Summary]]]:
    """Proved and estimated figures never share a table."""
    for basis in (PROVED, ESTIMATED):
        found = [(c, s) for c, s in zip(contents.curves, contents.summaries, strict=True) if c.basis == basis]
        if found:
            yield basis, [c for c, _ in found], [s for _, s in found]


def _statements(contents: Contents, curves: Sequence[Curve]) -> list[tuple[str, str]]:
    """What the figures hold for, one input and all of them at once, after the names of the curves it is said of."""
    said: dict[str, list[str]] = {}
    for curve in curves:
        inputs, wrong = len(curve.certificates), contents.possibly_wrong(curve)
        claim = f"each of the {inputs} certificates is certain: without noise nothing is left to chance."
        if curve.alpha:
            claim = (
                f"each of the {inputs} certificates is wrong with probability at most {curve.alpha:g}; with confidence "
                f"{1 - contents.rho:g} at most {wrong} of them {'is' if wrong == 1 else 'are'}, so that every accuracy "
                f"less {wrong / inputs:.4f} holds for the whole set."
            )
        if beside := str(curve.run.accuracies):
            claim += f" Accuracy: {beside}."
        said.setdefault(claim, []).append(curve.name)
    return [(", ".join(names), claim) for claim, names in said.items()]


def _published(contents: Contents, basis: str, percent: str) -> list[tuple[str, list[str]]]:
    """The rows of a published table beside what is proved, at the radii that it has; they are never the best."""
    if contents.baseline is None or basis != PROVED:
        return []
    return [
        (name, ["", *(percent.format(f"{100 * known[r]:.1f}") if r in known else "" for r in contents.radii), "", ""])
        for name, known in contents.baseline.rows()
    ]


def _shares(summary: Summary) -> list[float]:
    """Certified accuracy at radius 0 and at each radius."""
    return [summary.accuracy, *summary.certified.tolist()]


def _cells(summaries: Sequence[Summary], percent: str, bold: str) -> list[list[str]]:
    """The figures as text; the best as it is printed is bold, and so is what prints the same."""
    columns = [
        _emphasise([percent.format(f"{100 * share:.1f}") for share in shares], shares, bold)
        for shares in zip(*map(_shares, summaries), strict=True)
    ]
    averages = [s.average_radius for s in summaries]
    columns.append(_emphasise([f"{a:.3f}" for a in averages], averages, bold))
    columns.append([percent.format(f"{100 * s.abstained:.1f}") for s in summaries])
    return [list(cells) for cells in zip(*columns, strict=True)]


def _emphasise(texts: list[str], values: Sequence[float], bold: str) -> list[str]:
    best = texts[int(np.argmax(values))]
    return [bold.format(t) if t == best and len(texts) > 1 else t for t in texts]


def _pipes(lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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


TABLES: dict[str, Callable[[Contents], str]] = {"markdown": markdown, "latex": latex, "csv": comma_separated}
