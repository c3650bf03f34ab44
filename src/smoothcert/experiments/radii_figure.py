"""Figure 2 of the paper with the exact radii in it: radii against p₁ for L = 4, σ = 0.12, p₂ = 0.1."""

from __future__ import annotations

from typing import Any

import numpy as np

from smoothcert import radii
from smoothcert.experiments.reproduction import Result, Stage, canvas
from smoothcert.radii.gaussian import Floats
from smoothcert.report.figure import COLOURS

L, SIGMA, P2 = 4.0, 0.12, 0.1
SHOWN = (0.3, 0.6, 0.8, 0.9, 0.99)
LEGEND = {
    "R_mult": r"$R_\mathrm{mult}$ (Cohen et al.)",
    "R_multiLip": r"$R_\mathrm{multiLip}$ (the paper)",
    "exact mult": "exact (ours)",
    "R_mono": r"$R_\mathrm{mono}$ (Cohen et al.)",
    "R_monoLip": r"$R_\mathrm{monoLip}$ (the paper)",
    "exact mono": "exact (ours)",
}
LOSS = (0.2, 0.1, 0.1)
"""p₁, p₂ and Lσ of a point with few digits where R_multiLip is below R_mult."""


def where_it_loses() -> dict[str, Any]:
    """How often R_multiLip < R_mult for p₁ > p₂ in steps of 0.01 and ten Lσ, on which both depend in units of σ."""
    percent = np.arange(1, 100)
    a, b, steep = (v.ravel() for v in np.meshgrid(percent, percent, [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]))
    p1, p2, steep = (v[(a > b) & (a + b <= 100)] for v in (a / 100, b / 100, steep))
    paper = radii.mult_lipschitz(p1, p2, 1.0, steep)
    lost = paper < radii.mult(p1, p2, 1.0) - 1e-9
    example = {"p1": LOSS[0], "p2": LOSS[1], "lipschitz_times_sigma": LOSS[2]} | {
        "R_mult": float(radii.mult(*LOSS[:2], 1.0)),
        "R_multiLip": float(radii.mult_lipschitz(*LOSS[:2], 1.0, LOSS[2])),
    }
    return {
        "points": len(p1),
        "below": int(lost.sum()),
        "negative": int((paper < 0).sum()),
        "largest_p1": float(p1[lost].max()),
        "largest_lipschitz_times_sigma": float(steep[lost].max()),
        "example": example,
    }


def radii_figure(stage: Stage) -> Result:
    """The radii for one rival in one panel, those for all rivals as one in the other."""
    p1 = np.unique([*np.linspace(0.1, 0.995, 180), *SHOWN])
    panels = {
        "one rival": {
            "R_mult": radii.mult(p1, P2, SIGMA),
            "R_multiLip": radii.mult_lipschitz(p1, P2, SIGMA, L),
            "exact mult": radii.exact_mult(p1, P2, SIGMA, L),
        },
        "all rivals as one": {
            "R_mono": radii.mono(p1, SIGMA),
            "R_monoLip": radii.mono_lipschitz(p1, SIGMA, L),
            "exact mono": radii.exact_mono(p1, SIGMA, L),
        },
    }
    curves = {name: np.maximum(r, 0.0) for panel in panels.values() for name, r in panel.items()}
    loses = where_it_loses()
    at = np.searchsorted(p1, SHOWN)
    rows = [(f"{p1[i]:.2f}", *(f"{r[i]:.4f}" if r[i] > 0 else "–" for r in curves.values())) for i in at]
    return Result(
        title=f"Radii for L = {L:g}, σ = {SIGMA:g}, p₂ = {P2:g}",
        columns=("p₁", *curves),
        rows=rows,
        numbers={"lipschitz": L, "sigma": SIGMA, "p2": P2, "p1": p1.tolist()}
        | {"radii": {name: r.tolist() for name, r in curves.items()}, "multiLip_against_mult": loses},
        figure=_figure(p1, panels, across=True),
        pdfs={"radii": _figure(p1, panels, across=False)},
        remarks=[
            "R_multiLip is below R_mult at {below:,} of {points:,} points (p₁, p₂, Lσ), and negative at {negative:,}; "
            "p₁ is {largest_p1:g} or less there, and Lσ {largest_lipschitz_times_sigma:g} or less.".format(**loses),
            "In units of σ at p₁ = {p1:g}, p₂ = {p2:g}, Lσ = {lipschitz_times_sigma:g}: {R_multiLip:.4f} against "
            "{R_mult:.4f}.".format(**loses["example"]),
        ],
    )


def _figure(p1: Floats, panels: dict[str, dict[str, Floats]], across: bool) -> Any:
    """The panels beside each other, or one below the other for a column of a paper."""
    top = max(r.max() for panel in panels.values() for r in panel.values())
    with canvas(*((1, 2) if across else (2, 1)), height=2.4 if across else 1.9) as (figure, axes):
        for axis, (title, radii_of) in zip(axes.flat, panels.items(), strict=True):
            for (name, r), colour, line in zip(radii_of.items(), COLOURS, ("-", "--", ":"), strict=False):
                axis.plot(p1, np.where(r > 0, r, np.nan), color=colour, linestyle=line, label=LEGEND[name])
            axis.set_title(title)
            axis.set_ylim(0, top)
            axis.legend(frameon=False, fontsize=7)
        for axis in axes[-1, :]:
            axis.set_xlabel("$p_1$")
        for axis in axes[:, 0]:
            axis.set_ylabel("radius")
        figure.suptitle(f"L = {L:g}, σ = {SIGMA:g}, $p_2$ = {P2:g}", fontsize=8)
    return figure
