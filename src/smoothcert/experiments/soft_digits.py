"""What a proved Lipschitz constant adds: the table of docs/lipschitz.md, every row of a block from the same votes.

python -m smoothcert.experiments.soft_digits
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from smoothcert.certificate import Certificate
from smoothcert.classifier import SmoothedClassifier
from smoothcert.data import digits
from smoothcert.experiments.reproduction import SEED
from smoothcert.models import load_model
from smoothcert.plan import Softmax
from smoothcert.store.run import Run
from smoothcert.summary import summarise

RADII = np.array([0.2, 0.3, 0.4, 0.5, 0.6])
TEMPERATURES = (0.1, 0.2)


def soft_run(out: Path, temperature: float, *, sigma: float = 0.25, limit: int = 100, n: int = 10_000) -> Run:
    """Soft votes of the 1-Lipschitz network, with its constant proved."""
    smoothed = SmoothedClassifier(
        load_model("digits_lipschitz", device="cpu"),
        sigma=sigma,
        num_classes=10,
        votes=Softmax(temperature),
        engine="torch",
        batch=400,
        seed=SEED,
    )
    return smoothed.certify_dataset(digits(train=False), out=out, n=n, lipschitz="product", limit=limit)


def rows(run: Run) -> Iterator[tuple[str, list[Certificate]]]:
    """The radii that one set of votes proves."""
    for method in ("bonferroni-bernstein", "betting"):
        yield f"`{method}`, R_mult", run.certificates(method, plain=True)
    yield "`bonferroni-bernstein`, R_multiLip", run.certificates("bonferroni-bernstein")
    yield "`betting`, exact", run.certificates("betting")


def main() -> None:
    heads = [*(f"r = {r:g}" for r in RADII), "average radius"]
    print(f"| T | L | radius | {' | '.join(heads)} |")
    print("|---" * (3 + len(heads)) + "|")
    with TemporaryDirectory() as folder:
        for temperature in TEMPERATURES:
            run = soft_run(Path(folder) / f"{temperature}.smoothcert", temperature)
            for name, certificates in rows(run):
                s = summarise(certificates, run.labels, RADII)
                constant = certificates[0].lipschitz or np.inf
                cells = [*(f"{share:.2f}" for share in s.certified), f"{s.average_radius:.3f}"]
                print(f"| {temperature:g} | {constant:.3g} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
