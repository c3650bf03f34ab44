"""How a certificate and a run show themselves in a notebook."""

from __future__ import annotations

from html import escape

import numpy as np

from smoothcert.certificate import ESTIMATED, Certificate
from smoothcert.report.series import COLUMNS
from smoothcert.report.summary import certified_radii, curve, summarise, usual_radii
from smoothcert.store.run import Run
from smoothcert.text import printable

WIDTH, HEIGHT = 280, 110


def certificate_html(certificate: Certificate) -> str:
    """The statement, then the fields it rests on."""
    c = certificate
    claim = (
        "<b>abstained</b>: nothing is claimed"
        if c.abstained
        else f"<b>class {c.prediction}</b> for every change shorter than <b>{c.radius:.4g}</b> (ℓ2)"
        + (", <b>estimated, not proved</b>" if c.basis == ESTIMATED else "")
    )
    fields = {"basis": c.basis, "risk α": f"{c.alpha:g}", "σ": f"{c.sigma:g}", "noise": c.noise, "method": c.method}
    if c.noise_error:
        fields["level, less the noise's error"] = f"{c.level:.10g}"
    return f"<div>{claim}</div>" + _table({**fields, "draws": f"{c.n0:,} + {c.n:,}"})


def run_html(run: Run) -> str:
    """Certified accuracy as a table and a small curve."""
    plan = run.plan
    title = f"{escape(printable(str(run.path)))}: {len(run):,} of {plan.total:,} inputs, σ = {plan.sigma:g}"
    if not len(run):
        return f"<div>{title}</div>"
    certificates = run.certificates()
    won = certified_radii(certificates, run.labels)
    summary = summarise(certificates, run.labels, usual_radii(max(won.max(), 0.0), COLUMNS))
    shares = {f"r = {r:g}": f"{share:.1%}" for r, share in zip(summary.radii, summary.certified, strict=True)}
    table = _table({"method": plan.method, "any radius": f"{summary.accuracy:.1%}", **shares})
    return f"<div>{title}, α = {plan.alpha:g}</div>{table}{_plot(*curve(won))}"


def _table(fields: dict[str, str]) -> str:
    cells = [f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>" for tag, texts in _rows(fields)]
    return f"<table>{''.join(cells)}</table>"


def _rows(fields: dict[str, str]) -> list[tuple[str, list[str]]]:
    return [("th", list(fields)), ("td", list(fields.values()))]


def _plot(x: np.ndarray, y: np.ndarray) -> str:
    """The curve as steps, from radius 0 to the largest, 0 to 100 %."""
    scale = WIDTH / max(float(x[-1]), 1e-12)
    steps = "".join(f"V{HEIGHT * (1 - v):.1f}H{scale * r:.1f}" for r, v in zip(x.tolist(), y.tolist(), strict=True))
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT + 16}" role="img" aria-label="certified accuracy against radius">'
        f'<path d="M0 {HEIGHT}{steps}V{HEIGHT}" fill="none" stroke="#0072B2" stroke-width="1.5"/>'
        f'<path d="M0 0V{HEIGHT}H{WIDTH}" fill="none" stroke="currentColor"/>'
        f'<text y="{HEIGHT + 13}" font-size="11" fill="currentColor">0</text>'
        f'<text x="{WIDTH}" y="{HEIGHT + 13}" font-size="11" fill="currentColor" text-anchor="end">{x[-1]:.2f}</text>'
        f"</svg>"
    )
