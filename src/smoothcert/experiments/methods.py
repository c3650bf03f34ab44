"""What each method proves when the votes come out as expected: the figure of docs/methods.md.

python -m smoothcert.experiments.methods docs/methods.png
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds import METHODS
from smoothcert.files import write_whole

P2, ALPHA, N0 = 0.1, 0.001, 100


def expected_votes(p1: float, c: int, draws: int) -> NDArray[np.int64]:
    """Votes with shares p₁ and p₂ = 0.1 for the first two classes and the rest spread evenly over the others.

    >>> expected_votes(0.6, 5, 100).tolist()
    [60, 10, 10, 10, 10]
    """
    first = round(p1 * draws)
    second = min(round(P2 * draws), draws - first)
    rest = draws - first - second
    others = np.full(c - 2, rest // (c - 2))
    others[: rest % (c - 2)] += 1
    return np.concatenate([[first, second], others])


def margins(method: str, p1: NDArray[np.float64], c: int, n: int) -> NDArray[np.float64]:
    """The margin t that the method proves for each p₁."""
    selections = np.stack([expected_votes(p, c, N0) for p in p1])
    estimations = np.stack([expected_votes(p, c, n) for p in p1])
    return METHODS[method](selections, estimations, ALPHA).t


def main(path: str) -> None:
    """Draws t against p₁ for n = 1 000 and 10 000, 10 and 1 000 classes."""
    import matplotlib.pyplot as plt

    colours = dict(zip(METHODS, ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#000000"), strict=True))
    figure, axes = plt.subplots(2, 2, figsize=(9, 7), sharex=True, sharey=True, layout="constrained")
    p1 = np.linspace(0.14, 0.9, 39)
    for row, n in zip(axes, (1_000, 10_000), strict=True):
        for axis, c in zip(row, (10, 1_000), strict=True):
            for method, colour in colours.items():
                t = margins(method, p1, c, n)
                axis.plot(
                    p1, np.where(t > 0, t, np.nan), color=colour, label=method, lw=2 if method == "pairwise" else 1.3
                )
            axis.set_title(f"n = {n:,}, {c:,} classes")
            axis.grid(alpha=0.3)
    axes[0, 0].legend(frameon=False)
    figure.supxlabel("share p₁ of the candidate's votes (runner-up p₂ = 0.1, the rest spread evenly)")
    figure.supylabel("proved margin t (radius = σ t / 2), α = 0.001")
    write_whole(Path(path), partial(figure.savefig, format="png", dpi=110))


if __name__ == "__main__":
    main(sys.argv[1])
