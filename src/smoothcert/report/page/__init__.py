"""The report as one page: no network, no server, everything that came from outside embedded as inert data."""

from __future__ import annotations

import inspect
import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from html import escape
from importlib.metadata import version
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds import METHODS
from smoothcert.bounds.soft import INTERVALS
from smoothcert.certificate import PROVED
from smoothcert.plan import Duels, Margins, NoDraws
from smoothcert.plan.tally import Fought
from smoothcert.radii.margin import margins
from smoothcert.radii.soft import SOFT_METHODS
from smoothcert.report.contents import Contents
from smoothcert.report.curves import Curve, firsts
from smoothcert.report.headline import claimed, headline, headline_radius
from smoothcert.report.paired import Paired
from smoothcert.report.sheets import CELLS, COLUMNS, Sheets, sheets_of
from smoothcert.sampling.identity import Identity
from smoothcert.store.run import Run
from smoothcert.summary import Summary
from smoothcert.text import first_ten, listed, printable

SCRIPTS = ("dom.js", "chart.js", "histogram.js", "tables.js", "gallery.js", "page.js")
TOP_CLASSES = 6


def build_page(contents: Contents) -> str:
    """The HTML text."""
    sheets = [sheets_of(curve.run) for curve in firsts(contents.curves)]
    title, facts = headline(contents, sheets[0])
    data = page_data(contents, sheets)
    style = _asset("page.css")
    script = "(() => {\n'use strict';\n" + "\n".join(map(_asset, SCRIPTS)) + "\n})();\n"
    return Template(_asset("page.html")).substitute(
        policy=f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}",
        title=escape(title),
        facts="\n".join(f"<p>{escape(fact)}</p>" for fact in facts),
        style=style,
        script=script,
        data=embed(data),
        version=escape(version("smoothcert")),
    )


def embed(data: Any) -> str:
    """JSON that is inert inside a script element: ASCII, and no character that could end or open markup."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def page_data(contents: Contents, sheets: Sequence[Sheets | None]) -> dict[str, Any]:
    """All that the page shows, as JSON values; every name is printable. There are sheets for each run."""
    curves, radii, paired = contents.curves, contents.radii, contents.paired
    runs = firsts(curves)
    index = {id(c.run): i for i, c in enumerate(runs)}
    return {
        "rho": contents.rho,
        "radii": radii.tolist(),
        "headline": headline_radius(claimed(contents), contents),
        "comparable": contents.comparable,
        "baseline": _baseline(contents),
        "runs": [_run(c.run, seen, c.run_name) for c, seen in zip(runs, sheets, strict=True)],
        "series": [
            _curve(c, index[id(c.run)], summary, contents.possibly_wrong(c))
            for c, summary in zip(curves, contents.summaries, strict=True)
        ],
        "paired": None if paired is None else _paired(paired),
    }


def _most_voted(counts: NDArray[np.int64]) -> list[list[int]]:
    """Class and votes of the classes with the most."""
    (some,) = counts.nonzero()
    top = some[np.argsort(-counts[some], kind="stable")[:TOP_CLASSES]]
    return [[k, v] for k, v in zip(top.tolist(), counts[top].tolist(), strict=True)]


def _baseline(contents: Contents) -> dict[str, Any] | None:
    if contents.baseline is None:
        return None
    rows = [{"name": name, "points": list(known.items())} for name, known in contents.baseline.rows()]
    return {"source": contents.baseline.source, "rows": rows}


def _run(run: Run, sheets: Sheets | None, name: str) -> dict[str, Any]:
    votes = None
    if not run.voteless:
        votes = [_most_voted(counts) for counts in run.tally.estimations]
    return {
        "name": printable(name),
        "ids": [printable(id) for id in run.ids],
        "labels": run.labels.tolist(),
        "classes": None if run.info.classes is None else [printable(c) for c in run.info.classes],
        "votes": votes,
        "duels": _closest(run),
        "estimation": run.tally.estimations.sum(axis=1).tolist(),
        "accuracies": asdict(run.accuracies),
        "top": None if votes is None else top_probability(run).tolist(),
        "pictures": None if sheets is None else {**asdict(sheets), "columns": COLUMNS, "cells": CELLS},
        "made": [[printable(key), printable(value)] for key, value in _made(run)],
    }


def _closest(run: Run) -> list[list[int]] | None:
    """The rival that won most duels with the candidate of each input, and how many; None where votes are no duels."""
    if not isinstance(run.tally.others, Fought):
        return None
    lost = run.tally.others.lost
    closest: list[list[int]] = np.stack([lost.argmax(axis=1), lost.max(axis=1)], axis=1).tolist()
    return closest


def top_probability(run: Run) -> NDArray[np.float64]:
    """Of each input that was drawn at, the share of its estimation draws that voted for the class with most votes."""
    counts = run.tally.estimations  # as many as memory may just hold: they are not copied
    draws, drawn = counts.sum(axis=1), counts.any(axis=1)
    share: NDArray[np.float64] = counts.max(axis=1)[drawn] / draws[drawn]
    return share


def _curve(curve: Curve, run: int, summary: Summary, wrong: int) -> dict[str, Any]:
    return {
        "name": printable(curve.name),
        "run": run,
        "method": curve.method,
        "about": _about(curve.method),
        "basis": curve.basis,
        "shown": curve.asked and curve.basis == PROVED,
        "declared": curve.method == curve.run.plan.question.method,
        "alpha": curve.alpha,
        "wrong": wrong,
        "accuracy": summary.accuracy,
        "certified": summary.certified.tolist(),
        "averageRadius": summary.average_radius,
        "abstained": summary.abstained,
        "draws": [c.n0 + c.n for c in curve.certificates],
        "prediction": [c.prediction for c in curve.certificates],
        "radius": [c.radius for c in curve.certificates],
    }


def _paired(paired: Paired) -> dict[str, Any]:
    contrasts = [
        {"first": [printable(i) for i in c.first], "second": [printable(i) for i in c.second], "p": c.p}
        for c in (paired.larger, *paired.certified)
    ]
    return {
        "names": [printable(name) for name in paired.names],
        "inputs": paired.inputs,
        "larger": contrasts[0],
        "certified": contrasts[1:],
    }


def _made(run: Run) -> list[tuple[str, str]]:
    """How the run was made, line by line; what an imported log does not tell is left out."""
    info, plan = run.info, run.plan
    classifier, question, setting, selection = plan.classifier, plan.question, plan.setting, plan.selection
    every = f" (1 in {selection.skip})" if selection.skip > 1 else ""
    record = {
        "file": run.path.name,
        "command": info.command,
        "created": info.created,
        "classifier": info.model,
        "inputs": f"{info.data}, {len(run):,} of {selection.total:,}{every}",
        "classes": listed(classifier.num_classes, info.classes),
        "method": question.method,
        "risk α": f"{question.alpha:g} per input" if question.alpha else "none: nothing is left to chance",
        "soft votes": plan.votes_in_words,
        **_drawn(run),
        "preprocessing": selection.preprocessing,
        "engine": f"{setting.engine}, batches of {setting.batch}" if isinstance(setting.engine, Identity) else "",
        "classifier fingerprint": classifier.model,
        "inputs fingerprint": selection.inputs or selection.data,
        "versions": first_ten([f"{name} {number}" for name, number in info.versions.items()]),
    }
    return [(key, value) for key, value in record.items() if value]


def _drawn(run: Run) -> dict[str, str]:
    """The noise and the votes behind the radii, or what there is instead."""
    plan, question, seed = run.plan, run.plan.question, run.plan.setting.seed
    if plan.classifier.is_bare:
        return {"noise": "none", "ℓ2 constant of the scores": f"{plan.constant:.6g}, proved"}
    bound = "at most " if plan.adaptive else ""
    return {
        "noise": f"σ = {plan.classifier.sigma:g}, {plan.noise_in_words}",
        "draws": f"{question.n0:,} to select the class, {bound}{question.draws.most:,} to prove the radius, per input",
        "votes": "not in the imported log, only radii" if run.info.radii_only else "kept in the file",
        "seed": "" if seed is None else str(seed),
    }


def _about(method: str) -> str:
    """The first line of the file that holds the method, or of the function where one file holds several."""
    homes = {**METHODS, **Duels.methods, **Margins.methods, NoDraws.method: margins}
    home = inspect.getmodule(homes[method]) if method in homes else INTERVALS.get(method, SOFT_METHODS.get(method))
    return (home.__doc__ or "").splitlines()[0] if home else ""


def _asset(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The source that a content security policy allows: this very text."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
