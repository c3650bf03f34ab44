"""Certified accuracy and accuracy under attack against ε, as steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.experiments.reproduction import canvas
from smoothcert.report.figure import COLOURS
from smoothcert.summary import curve

Radii = Mapping[str, NDArray[np.float64]]
Style = dict[str, Any]


def _style(colour: str, dash: Any, width: float, marker: str = "") -> Style:
    return {"color": colour, "linestyle": dash, "linewidth": width, "marker": marker}


STYLES = (
    _style(COLOURS[2], "-", 2.2),
    _style(COLOURS[0], "-", 1.2, "o"),
    _style(COLOURS[3], "-", 1.0, "s"),
    _style(COLOURS[6], (0, (6, 2)), 1.8),
    _style(COLOURS[4], "-.", 1.2, "D"),
    _style(COLOURS[1], (0, (4, 1)), 1.2),
    _style(COLOURS[1], (0, (1, 1)), 1.8),
    _style(COLOURS[5], (0, (4, 1)), 1.0, "^"),
    _style(COLOURS[5], (0, (1, 1)), 1.2, "^"),
)
"""Of the certificates, in their order: lines differ in dash, width or marker, not in colour alone."""

ATTACKED = (_style("#000000", (0, (1, 2)), 1.2), _style("#000000", (0, (1, 2)), 1.2, "x"))


def gap_figure(won: Radii, norms: Radii, largest: float, width: float) -> object:
    """Each certificate by the radii that were certified, each attack by the norms that it needed."""
    with canvas(1, 1, width=width, height=0.8 * width) as (figure, axes):
        axis = axes[0, 0]
        marked = {"markersize": 3, "markevery": 0.12}
        for (name, radii), style in zip(won.items(), STYLES, strict=True):
            x, y = curve(radii)
            axis.step([*x, x[-1]], [*y, 0.0], where="pre", label=name, **style, **marked)
        for (name, found), style in zip(norms.items(), ATTACKED, strict=True):
            x = np.unique([0.0, *found[found <= largest], largest])
            axis.step(x, [(found > e).mean() for e in x], where="post", label=name, **style, **marked)
        axis.set_xlim(0, largest)
        axis.set_ylim(bottom=0)
        axis.set_xlabel(r"$\varepsilon$ ($\ell_2$)")
        axis.set_ylabel("accuracy")
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=6, handlelength=4)
    return figure
