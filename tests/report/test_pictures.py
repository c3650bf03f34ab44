"""The pictures of the report."""

from base64 import b64decode
from io import BytesIO

import numpy as np
from PIL import Image

from smoothcert import certify_dataset
from smoothcert.data import as_dataset
from smoothcert.report.pictures import COLUMNS, pictures


def cell(shown, kind, i):
    sheet = np.asarray(Image.open(BytesIO(b64decode(getattr(shown, kind)[0].partition(",")[2]))).convert("L"))
    top, left = shown.height * (i // COLUMNS), shown.width * (i % COLUMNS)
    return sheet[top : top + shown.height, left : left + shown.width]


def test_the_noisy_picture_is_one_the_classifier_saw(squares, seen):
    shown = pictures(squares)
    assert shown.whole
    assert all(cell(shown, "noisy", i).tobytes() in seen for i in range(len(squares)))
    assert not any(cell(shown, "clean", i).tobytes() in seen for i in range(len(squares)))


class Large:
    """Images that the run keeps only in a smaller size."""

    def __len__(self):
        return 2

    def __getitem__(self, row):
        return np.full((3, 80, 80), 0.5, dtype=np.float32), row


def test_a_shrunk_picture_does_not_claim_the_noise_of_the_run(tmp_path):
    run = certify_dataset(
        lambda batch: batch[:, 0, 0, :2], as_dataset(Large()), sigma=0.1, out=tmp_path / "r", n0=2, n=4, batch=2
    )
    shown = pictures(run)
    assert (shown.width, shown.whole) == (64, False)


def test_a_log_has_no_pictures(log_run):
    assert pictures(log_run(0.25, [(0, 0, 0.5)])) is None


def test_the_picture_of_a_digit_on_its_grid_is_one_the_classifier_saw(tmp_path):
    seen = set()

    def watched(batch):
        seen.update(row.tobytes() for row in np.round(255 * batch.clip(0, 1)).astype(np.uint8))
        return np.zeros(len(batch), dtype=int)

    run = certify_dataset(watched, "digits", sigma=0.25, noise="grid", out=tmp_path / "r", n0=2, n=4, limit=3, batch=2)
    shown = pictures(run)
    assert shown.whole
    assert all(cell(shown, "noisy", i).tobytes() in seen for i in range(3))
