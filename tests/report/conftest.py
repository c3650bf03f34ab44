"""Small runs to report on: the squares, and logs with known radii."""

import sys
from pathlib import Path

import numpy as np
import pytest

from smoothcert import Duels, SmoothedClassifier
from smoothcert.store.logs import import_logs

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def seen():
    """Every noisy copy that the classifier of the squares was shown, as 8-bit values."""
    return set()


@pytest.fixture(scope="session")
def squares(tmp_path_factory, seen):
    from report.squares import Squares, nearest

    def watched(batch):
        seen.update(row.tobytes() for row in np.round(255 * batch.clip(0, 1)).astype(np.uint8))
        return nearest(batch)

    out = tmp_path_factory.mktemp("squares") / "squares.smoothcert"
    smoothed = SmoothedClassifier(watched, sigma=0.6, num_classes=4, votes=Duels(), batch=100, seed=0)
    return smoothed.certify_dataset(Squares(), out=out, n0=20, n=400)


@pytest.fixture
def log_run(tmp_path):
    """A run imported from a log with the given (label, prediction, radius) rows."""

    def make(sigma, rows, ids=None):
        log = tmp_path / f"log_sigma_{sigma}.tsv"
        lines = [
            f"{ids[i] if ids else i}\t{label}\t{k}\t{radius}\t{int(label == k)}\t0:00:01"
            for i, (label, k, radius) in enumerate(rows)
        ]
        log.write_text("\n".join(["idx\tlabel\tpredict\tradius\tcorrect\ttime", *lines]))
        return import_logs([log], tmp_path / f"{sigma}.smoothcert")

    return make
