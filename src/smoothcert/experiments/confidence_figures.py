"""Certified accuracy by confidence method, drawn: one picture of all trials, and one a σ for a column of a paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from smoothcert.experiments.reproduction import COLUMN, canvas
from smoothcert.report.figure import COLOURS

NAMES = {
    "mono": "Clopper-Pearson",
    "bonferroni": "Bonferroni",
    "cpm": "CPM",
    "pairwise": "pairwise (ours)",
    "duels": "duels (ours)",
}
LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1)))
TITLES = {
    "digits_cnn": "small CNN, digits",
    "cifar_small": "small ResNet, CIFAR-10",
    "cifar_resnet110": "ResNet-110, CIFAR-10",
    "efficientnet_lite0": "EfficientNet-Lite0, ImageNet",
    "resnet50": "ResNet-50, ImageNet",
}
Panel = dict[str, Any]


def overview(panels: Sequence[Panel]) -> Any:
    """All trials, two in a row."""
    with canvas((len(panels) + 1) // 2, min(2, len(panels))) as (figure, axes):
        for panel, axis in zip(panels, axes.flat, strict=False):
            _curves(axis, panel)
            axis.set_title(_title(panel))
        axes.flat[0].legend(frameon=False, fontsize=7)
        for axis in axes.flat[len(panels) :]:
            axis.set_visible(False)
        figure.supxlabel(r"radius ($\ell_2$)", fontsize=8)
        figure.supylabel("certified accuracy", fontsize=8)
    return figure


def columns(panels: Sequence[Panel]) -> dict[str, Any]:
    """For each network and σ one picture, of its largest n: the curves, and below how far they are from the first."""
    largest = {(p["model"], p["sigma"]): p for p in sorted(panels, key=lambda p: p["n"])}
    return {f"confidence-{model}-sigma{sigma:g}": _column(panel) for (model, sigma), panel in largest.items()}


def _column(panel: Panel) -> Any:
    with canvas(2, 1, width=COLUMN, height=1.7) as (figure, axes):
        whole, zoomed = axes.flat
        _curves(whole, panel)
        whole.set_title(_title(panel))
        whole.set_ylabel("certified accuracy")
        whole.legend(frameon=False, fontsize=6, handlelength=2.6)
        radii = np.linspace(0, max(x[-1] for x, _ in panel["curves"].values()), 400)
        base = _at(panel, "mono", radii)
        for method, colour, line in _styled():
            zoomed.step(radii, 100 * (_at(panel, method, radii) - base), where="pre", color=colour, linestyle=line)
        zoomed.set_xlim(whole.get_xlim())
        zoomed.set_xlabel(r"radius ($\ell_2$)")
        zoomed.set_ylabel(f"points more than\n{NAMES['mono']}", fontsize=7)
    return figure


def _title(panel: Panel) -> str:
    return f"{TITLES.get(panel['model'], panel['model'])}, σ = {panel['sigma']:g}, n = {panel['n']:,}"


def _styled() -> list[tuple[str, str, Any]]:
    return list(zip(NAMES, COLOURS, LINES, strict=False))


def _curves(axis: Any, panel: Panel) -> None:
    for method, colour, line in _styled():
        x, y = panel["curves"][method]
        axis.step([*x, x[-1]], [*y, 0], where="pre", label=NAMES[method], color=colour, linestyle=line)
    axis.set_xlim(left=0)
    axis.set_ylim(0, 1)


def _at(panel: Panel, method: str, radii: Any) -> Any:
    """The certified accuracy at radii: that of the smallest step that is not below."""
    x, y = (np.array(v) for v in panel["curves"][method])
    return np.append(y, 0.0)[np.searchsorted(x, radii)]
