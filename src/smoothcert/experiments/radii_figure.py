"""Figure 2 of the paper with the exact radii in it: radii against p₁ for L = 4, σ = 0.12, p₂ = 0.1."""

from __future__ import annotations

import numpy as np

from smoothcert import radii
from smoothcert.experiments.reproduction import Result, Stage, canvas
from smoothcert.report.figure import COLOURS

L, SIGMA, P2 = 4.0, 0.12, 0.1
SHOWN = (0.3, 0.6, 0.8, 0.9, 0.99)


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
    with canvas(1, 2) as (figure, axes):
        for axis, (title, names) in zip(axes.flat, panels.items(), strict=True):
            for name, colour in zip(names, COLOURS, strict=False):
                r = curves[name]
                axis.plot(p1, np.where(r > 0, r, np.nan), color=colour, label=name)
            axis.set_title(title)
            axis.set_xlabel("$p_1$")
            axis.set_ylim(0, curves["exact mono"].max())
            axis.legend(frameon=False, fontsize=7)
        axes[0, 0].set_ylabel("radius")
        figure.suptitle(f"L = {L:g}, σ = {SIGMA:g}, $p_2$ = {P2:g}", fontsize=8)
    at = np.searchsorted(p1, SHOWN)
    rows = [(f"{p1[i]:.2f}", *(f"{r[i]:.4f}" if r[i] > 0 else "–" for r in curves.values())) for i in at]
    return Result(
        title=f"Radii for L = {L:g}, σ = {SIGMA:g}, p₂ = {P2:g}",
        columns=("p₁", *curves),
        rows=rows,
        numbers={"lipschitz": L, "sigma": SIGMA, "p2": P2, "p1": p1.tolist()}
        | {"radii": {name: r.tolist() for name, r in curves.items()}},
        figure=figure,
    )
