"""How a run shows itself in a notebook."""

from __future__ import annotations

from html import escape

import numpy as np

from smoothcert.store.run import Run
from smoothcert.summary import certified_radii, curve, summary_at, usual_radii
from smoothcert.text import counted, html_table, printable

WIDTH, HEIGHT, COLUMNS = 280, 110, 9


def run_html(run: Run) -> str:
    """Certified accuracy as a table and a small curve."""
    plan = run.plan
    title = (
        f"{escape(printable(str(run.path)))}: {len(run):,} of {counted(plan.selection.total, 'input')}, "
        f"{plan.classifier.sigma_in_words}"
    )
    if not len(run) or (said := run.too_long()):
        return f"<div>{title}</div><div>{escape(said) if len(run) else ''}</div>"
    certificates = run.certificates()
    won = certified_radii(certificates, run.labels)
    summary = summary_at(usual_radii(max(won.max(), 0.0), COLUMNS), won, certificates)
    shares = {f"r = {r:g}": f"{share:.1%}" for r, share in zip(summary.radii, summary.certified, strict=True)}
    table = html_table({"method": plan.question.method, "any radius": f"{summary.accuracy:.1%}", **shares})
    return f"<div>{title}, α = {plan.question.alpha:g}</div>{table}{_plot(*curve(won))}"


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
