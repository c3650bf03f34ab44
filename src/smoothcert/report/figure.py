"""Certified accuracy against radius as a figure for papers."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np

from smoothcert.certificate import PROVED
from smoothcert.errors import InputError
from smoothcert.report.contents import Contents

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#444444", "#9A6700", "#56B4E9")
"""Okabe and Ito's colours, those that are too pale for thin lines replaced."""

MARKERS = "osD^v<>"

STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.2,
    "pdf.fonttype": 42,  # fonts that submission systems accept
    "svg.hashsalt": "smoothcert",
}


def save_figure(contents: Contents, file: BinaryIO, kind: str) -> None:
    """One column wide (3.3 in); proved curves are solid, estimated ones dashed, published figures are points; several
    runs on the same inputs get their envelope."""
    curves = contents.curves
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.ticker import PercentFormatter
    except ImportError:
        raise InputError(f"A {kind} figure needs Matplotlib: pip install 'smoothcert[report]'.") from None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.3, 2.4), layout="constrained")
        axes = figure.add_subplot()
        for i, curve in enumerate(curves):
            x, y = curve.steps
            axes.step(
                [*x, x[-1]],
                [*y, 0],
                where="pre",
                label=curve.name.replace("$", r"\$"),
                color=COLOURS[i % len(COLOURS)],
                linestyle="-" if curve.basis == PROVED else "--",
            )
        proved = [c for c in curves if c.basis == PROVED]
        if contents.comparable and len({id(c.run) for c in proved}) > 1:
            x = np.unique(np.concatenate([c.steps[0] for c in proved]))
            best = np.max([(c.won[:, None] >= x).mean(axis=0) for c in proved], axis=0)
            axes.step(x, best, where="pre", label="upper envelope", color="#000000", alpha=0.2, linewidth=4, zorder=0)
        for marker, (name, known) in zip(MARKERS, contents.baseline.rows() if contents.baseline else (), strict=False):
            axes.plot(list(known), list(known.values()), marker, label=name, color="#666666", markersize=3)
        axes.set_xlim(left=0)
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.set_xlabel(r"radius ($\ell_2$)")
        axes.set_ylabel("certified accuracy")
        axes.grid(linewidth=0.3, alpha=0.5)
        axes.legend(frameon=False, fontsize=7)
        dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
        figure.savefig(file, format=kind, dpi=300, metadata=dates[kind])
