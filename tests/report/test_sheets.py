"""The sheets of pictures in the report."""

from base64 import b64decode
from dataclasses import replace
from io import BytesIO

import numpy as np
import torch
from PIL import Image

from smoothcert import SmoothedClassifier, open_run
from smoothcert.data import as_dataset
from smoothcert.report.sheets import COLUMNS, sheets_of
from smoothcert.sampling.blocks import Phase, noise_key
from smoothcert.sampling.identity import Identity
from smoothcert.sampling.noise.threefry import normals


def cell(shown, kind, i):
    sheet = np.asarray(Image.open(BytesIO(b64decode(getattr(shown, kind)[0].partition(",")[2]))).convert("L"))
    top, left = shown.height * (i // COLUMNS), shown.width * (i % COLUMNS)
    return sheet[top : top + shown.height, left : left + shown.width]


def test_the_noisy_picture_is_one_the_classifier_saw(squares, seen):
    shown = sheets_of(squares)
    assert shown.whole
    assert all(cell(shown, "noisy", i).tobytes() in seen for i in range(len(squares)))
    assert not any(np.array_equal(cell(shown, "clean", i), cell(shown, "noisy", i)) for i in range(len(squares)))


def test_the_noisy_picture_of_an_older_run_on_a_gpu_has_the_noise_of_the_gpu(squares):
    run = open_run(squares.path)
    setting = replace(run.plan.setting, engine=Identity("torch", "torch 2", "cuda"), stream=1)
    run.plan = replace(run.plan, setting=setting)
    shown = sheets_of(run)
    for i, id in enumerate(run.ids):
        noise = normals(noise_key(setting.seed, id, Phase.ESTIMATION, 0), 0, 64, torch.device("cpu")).numpy()
        copy = cell(shown, "clean", i) / 255 + 0.6 * noise.reshape(8, 8)
        np.testing.assert_allclose(cell(shown, "noisy", i), 255 * copy.clip(0, 1), atol=0.501)


class Large:
    """Images that the run keeps only in a smaller size."""

    def __len__(self):
        return 2

    def __getitem__(self, row):
        return np.full((3, 80, 80), 0.5, dtype=np.float32), row


def test_a_shrunk_picture_does_not_claim_the_noise_of_the_run(tmp_path):
    smoothed = SmoothedClassifier(lambda batch: batch[:, 0, 0, :2], sigma=0.1, num_classes=2, batch=2, seed=0)
    run = smoothed.certify_dataset(as_dataset(Large()), out=tmp_path / "r", n0=2, n=4)
    shown = sheets_of(run)
    assert (shown.width, shown.whole) == (64, False)


def test_a_log_has_no_sheets_of(log_run):
    assert sheets_of(log_run(0.25, [(0, 0, 0.5)])) is None


def test_the_picture_of_a_digit_on_its_grid_is_one_the_classifier_saw(tmp_path):
    seen = set()

    def watched(batch):
        seen.update(row.tobytes() for row in np.round(255 * batch.clip(0, 1)).astype(np.uint8))
        return np.zeros(len(batch), dtype=int)

    smoothed = SmoothedClassifier(watched, sigma=0.25, num_classes=10, noise="grid", levels=16, batch=2, seed=0)
    run = smoothed.certify_dataset("digits", out=tmp_path / "r", n0=2, n=4, limit=3)
    shown = sheets_of(run)
    assert shown.whole
    assert all(cell(shown, "noisy", i).tobytes() in seen for i in range(3))
