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

from smoothcert.bounds import METHODS, SOFT_METHODS
from smoothcert.bounds.soft import INTERVALS
from smoothcert.certificate import PROVED
from smoothcert.report.paired import Paired
from smoothcert.report.pictures import CELLS, COLUMNS, Pictures, pictures
from smoothcert.report.series import Series
from smoothcert.store.run import Run
from smoothcert.text import printable

SCRIPTS = ("dom.js", "chart.js", "tables.js", "gallery.js", "page.js")
TOP_CLASSES = 6


def build_page(series: Sequence[Series], radii: NDArray[np.float64], rho: float, paired: Paired | None) -> str:
    """The HTML text."""
    runs = list({id(s.run): s.run for s in series}.values())
    shown = [pictures(run) for run in runs]
    title, facts = headline(series, radii, shown[0])
    data = page_data(series, runs, shown, radii, rho, paired)
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


def headline(series: Sequence[Series], radii: NDArray[np.float64], shown: Pictures | None) -> tuple[str, list[str]]:
    """The first sentence and the few that explain it.

    It speaks of the largest radius of the table at which half of the inputs are certified, or else of the smallest.
    """
    asked = [s for s in series if s.asked]
    candidates = [s for s in asked if s.basis == PROVED] or asked
    at = headline_radius(candidates, radii)
    best = max(candidates, key=lambda s: float((s.won >= at).mean()))
    count, inputs, run = int((best.won >= at).sum()), len(best.won), best.run
    several = len({id(s.run) for s in candidates})
    share = f"{100 * count / inputs:.1f}".removesuffix(".0")
    claim = (
        f"{share}\u00a0% of the inputs are robust: the answer is right, and no change smaller than {at:g} can alter it."
        if count
        else f"No input has the right answer proved against changes as large as {at:g}."
    )
    model = printable(run.info.model) or "that of the imported log"
    facts = [
        f"{_verb(best)} for {count:,} of {inputs:,} inputs ({printable(run.info.data)})"
        + (f" in the best of {several} runs, {printable(best.run_name)}. " if several > 1 else ". ")
        + f"The classifier is {model}, smoothed: it looks at many noisy copies of an input (noise σ = "
        f"{run.plan.sigma:g}) and gives the answer that most of them get. For each input, the risk that its proof is "
        f"wrong is at most {_odds(best.alpha)}."
    ]
    if len(run) < run.plan.total:
        facts.append(f"The run is not finished: {len(run):,} of {run.plan.total:,} inputs have all their draws.")
    return claim, [*facts, _size(at, shown)]


def headline_radius(series: Sequence[Series], radii: NDArray[np.float64]) -> float:
    half = [float(r) for r in radii if any((s.won >= r).mean() >= 0.5 for s in series)]
    return max(half, default=float(radii[0]))


def page_data(
    series: Sequence[Series],
    runs: Sequence[Run],
    shown: Sequence[Pictures | None],
    radii: NDArray[np.float64],
    rho: float,
    paired: Paired | None,
) -> dict[str, Any]:
    """All that the page shows, as JSON values; every name is printable."""
    index = {id(run): i for i, run in enumerate(runs)}
    return {
        "rho": rho,
        "radii": radii.tolist(),
        "headline": headline_radius([s for s in series if s.asked], radii),
        "runs": [
            _run(run, seen, next(s.run_name for s in series if s.run is run))
            for run, seen in zip(runs, shown, strict=True)
        ],
        "series": [_series(s, index[id(s.run)], radii, rho) for s in series],
        "paired": None if paired is None else _paired(paired),
    }


def _run(run: Run, shown: Pictures | None, name: str) -> dict[str, Any]:
    votes = None
    if not run.info.radii_only:
        top = np.argsort(-run.tally.estimations, axis=1, kind="stable")[:, :TOP_CLASSES]
        counts = np.take_along_axis(run.tally.estimations, top, axis=1)
        votes = [
            [[k, v] for k, v in zip(ks, vs, strict=True) if v]
            for ks, vs in zip(top.tolist(), counts.tolist(), strict=True)
        ]
    return {
        "name": printable(name),
        "ids": [printable(id) for id in run.ids],
        "labels": run.labels.tolist(),
        "classes": None if run.info.classes is None else [printable(c) for c in run.info.classes],
        "votes": votes,
        "estimation": run.tally.estimations.sum(axis=1).tolist(),
        "pictures": None if shown is None else {**asdict(shown), "columns": COLUMNS, "cells": CELLS},
        "made": [[printable(key), printable(value)] for key, value in _made(run)],
    }


def _series(series: Series, run: int, radii: NDArray[np.float64], rho: float) -> dict[str, Any]:
    summary = series.summary(radii)
    return {
        "name": printable(series.name),
        "run": run,
        "method": series.method,
        "about": _about(series.method),
        "basis": series.basis,
        "shown": series.asked and series.basis == PROVED,
        "declared": series.method == series.run.plan.method,
        "alpha": series.alpha,
        "wrong": series.possibly_wrong(rho),
        "accuracy": summary.accuracy,
        "certified": summary.certified.tolist(),
        "averageRadius": summary.average_radius,
        "abstained": summary.abstained,
        "draws": [c.n0 + c.n for c in series.certificates],
        "prediction": [c.prediction for c in series.certificates],
        "radius": [c.radius for c in series.certificates],
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
    info, plan, skip = asdict(run.info), asdict(run.plan), run.plan.skip
    bound = "at most " if run.claimed and not run.info.radii_only else ""
    record = {
        "file": run.path.name,
        "command": info["command"],
        "created": info["created"],
        "classifier": info["model"],
        "inputs": f"{info['data']}, {len(run):,} of {plan['total']:,}" + (f" (1 in {skip})" if skip > 1 else ""),
        "method": plan["method"],
        "risk α": f"{plan['alpha']:g} per input",
        "soft votes": run.votes_in_words,
        "noise": f"σ = {plan['sigma']:g}, {run.plan.noise_in_words}",
        "draws": f"{plan['n0']:,} to select the class, {bound}{plan['n']:,} to prove the radius, per input",
        "votes": "not in the imported log, only radii" if info["radii_only"] else "kept in the file",
        "seed": "" if info["radii_only"] else str(plan["seed"]),
        "preprocessing": plan["preprocessing"],
        "engine": f"{plan['engine']}, batches of {plan['batch']}" if plan["engine"] else "",
        "classifier fingerprint": plan["model"],
        "inputs fingerprint": plan["data"],
        "versions": ", ".join(f"{name} {number}" for name, number in info["versions"].items()),
    }
    return [(key, value) for key, value in record.items() if value]


def _about(method: str) -> str:
    """The first line of the file that holds the method, or of the function where one file holds several."""
    home = inspect.getmodule(METHODS[method]) if method in METHODS else INTERVALS.get(method, SOFT_METHODS.get(method))
    return (home.__doc__ or "").splitlines()[0] if home else ""


def _verb(series: Series) -> str:
    return "This is proved" if series.basis == PROVED else "This rests on an estimate, not on a proof,"


def _odds(alpha: float) -> str:
    return f"1 in {round(1 / alpha):,}" if abs(round(1 / alpha) * alpha - 1) < 1e-9 else f"{alpha:g}"


def _size(radius: float, shown: Pictures | None) -> str:
    """What a change of that size looks like."""
    norm = "square what is added to each number of the input, sum up, take the root (ℓ2 norm)"
    if shown is None or not shown.whole:
        return f"The size of a change: {norm}."
    unit = "pixel" if shown.values == shown.width * shown.height else "colour value"
    one = f"one {unit} changed by {radius:g}, or " if radius <= 1 else ""
    return (
        f"How large is {radius:g}? As large as {one}all {shown.values:,} {unit}s by {radius / shown.values**0.5:.2g} "
        f"each, where 0 is dark and 1 is bright. In general: {norm}."
    )


def _asset(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The source that a content security policy allows: this very text."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
