"""A run that was stopped anywhere ends with the votes of one that was never stopped."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import children
import heard
import interruptible
from interruptible import IMAGES, PLAN, Items, certify, classify, interrupted_after, votes
from smoothcert import InputError, RunError, open_run
from smoothcert.store import file as run_file
from smoothcert.store.file import RunFile


@pytest.mark.parametrize("calls", [1, 2, 3, 40, 200, 370])
def test_ctrl_c_in_the_model(tmp_path, uninterrupted, calls):
    path = tmp_path / "run.smoothcert"
    with interrupted_after(calls):
        certify(path)
    assert votes(certify(path)) == uninterrupted


@pytest.mark.parametrize("rows", [0, 1, 30])
def test_ctrl_c_while_votes_are_inserted(tmp_path, uninterrupted, monkeypatch, rows):
    """All that was drawn is there afterwards, though they were inserted in part."""
    path, left, drawn = tmp_path / "run.smoothcert", iter(range(rows)), []
    pack = run_file.schema.pack

    def interrupted(votes):
        if next(left, None) is None and not drawn:
            drawn.append(votes)
            raise KeyboardInterrupt
        return pack(votes)

    monkeypatch.setattr("smoothcert.store.file.COMMIT_SECONDS", 0.05)
    monkeypatch.setattr(run_file.schema, "pack", interrupted)
    with pytest.raises(KeyboardInterrupt):
        certify(path, interruptible.slowly)
    with RunFile.open_to_read(path) as file:
        stored = {(v.position, v.phase, v.first) for v in file.votes()}
    assert (drawn[0].position, drawn[0].phase, drawn[0].first) in stored
    monkeypatch.undo()
    assert votes(certify(path, interruptible.slowly)) == uninterrupted


@pytest.mark.parametrize("moment", ["declares", "open_to_write"])
def test_ctrl_c_between_the_file_and_the_first_draw_leaves_none(tmp_path, monkeypatch, moment):
    path, passed = tmp_path / "run.smoothcert", getattr(RunFile, moment)

    def interrupted(*given):
        if path.exists() and not interrupted.done:
            interrupted.done = True
            raise KeyboardInterrupt
        return passed(*given)

    interrupted.done = False
    monkeypatch.setattr(RunFile, moment, interrupted)
    with pytest.raises(KeyboardInterrupt):
        certify(path)
    assert interrupted.done
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_kill_9_at_random_moments(tmp_path, uninterrupted):
    path = tmp_path / "run.smoothcert"
    moments = random.Random(0)
    kills = 0
    for _ in range(40):
        process = children.start(interruptible.certify_slowly, path)
        process.join(moments.uniform(0.05, 0.6))
        if process.exitcode is not None:
            assert process.exitcode == 0
            break
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills += path.exists()  # it is there from the first draw on
    assert kills >= 1
    assert votes(certify(path, interruptible.slowly)) == uninterrupted


def test_a_finished_run_draws_nothing_more(tmp_path, uninterrupted, monkeypatch):
    path = tmp_path / "run.smoothcert"
    certify(path)
    calls = []
    monkeypatch.setattr(heard, "call", lambda batch: calls.append(len(batch)))
    assert votes(certify(path)) == uninterrupted
    assert sum(calls) <= 4 * PLAN["batch"]  # the check of rows, and the stored row that every resume computes again


def test_a_full_disk(tmp_path, uninterrupted, monkeypatch):
    """SQLite is told that the file may not grow, which is the error a full disk gives."""
    path = tmp_path / "run.smoothcert"
    opened = RunFile.open_to_write

    def small(given):
        file = opened(given)
        if given != path:  # the inputs were read into it
            return file
        pages = file._db.execute("PRAGMA page_count").fetchone()[0]
        file._db.execute(f"PRAGMA max_page_count = {pages + 2}")
        return file

    monkeypatch.setattr("smoothcert.store.file.COMMIT_SECONDS", 0.0)
    monkeypatch.setattr(RunFile, "open_to_write", small)
    with pytest.raises(RunError, match="the disk is full: free some space and start it again"):
        certify(path)
    monkeypatch.undo()
    assert 0 < len(open_run(path)) < 12
    assert votes(certify(path)) == uninterrupted


def test_a_second_writer_says_so_and_leaves(tmp_path, uninterrupted, monkeypatch):
    path = tmp_path / "run.smoothcert"

    refused = []

    def write_too(batch):
        if path.exists() and not refused:
            refused.append(None)
            with pytest.raises(RunError, match="another process is writing"):
                certify(path)

    monkeypatch.setattr(heard, "call", write_too)
    assert votes(certify(path)) == uninterrupted
    assert refused


def test_reading_while_it_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("smoothcert.store.file.COMMIT_SECONDS", 0.0)
    path, seen = tmp_path / "run.smoothcert", []

    def model(batch):
        if path.exists():
            seen.append(len(open_run(path)))
        return classify(batch)

    certify(path, model)
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert seen[-1] >= 10


def linear(scale=1.0):
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3, bias=False))
    with torch.no_grad():
        module[1].weight.copy_(scale * torch.from_numpy(interruptible.WEIGHTS.T))
    return module


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sigma": 0.31}, "sigma = 0.3, not 0.31"),
        ({"seed": 1}, "seed = 0, not 1"),
        ({"batch": 65}, "batch = 64, not 65"),
        ({"alpha": 0.01}, "alpha = 0.001, not 0.01"),
        ({"votes": "labels"}, "votes = duels, not labels"),
        ({"n0": 60}, "declared n0 = 50, not 60"),
        ({"n": 5000}, "declared n = 1930, not 5000: changing it after looking"),
        ({"skip": 2}, "skip = 1, not 2"),
        ({"limit": 5}, "limit = None, not 5"),
        ({"model": linear(2.0)}, "another model"),
        ({"model": classify}, "another model"),
        ({"data": Items(1 - IMAGES)}, "another data set"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_plan_is_refused_and_named(tmp_path, changes, message):
    path = tmp_path / "run.smoothcert"
    before = votes(certify(path, linear()))
    with pytest.raises(InputError, match=message) as refusal:
        certify(path, **{"model": linear(), **changes})
    assert "another `out`" in str(refusal.value)
    assert votes(open_run(path)) == before


def test_auto_means_what_the_run_stored(tmp_path, uninterrupted):
    path = tmp_path / "run.smoothcert"
    certify(path)
    assert votes(certify(path, batch="auto")) == uninterrupted


def test_a_callable_that_changed_where_nobody_can_see(tmp_path, monkeypatch):
    path = tmp_path / "run.smoothcert"
    certify(path)
    monkeypatch.setattr(heard, "call", lambda batch: np.negative(batch, out=batch))
    with pytest.raises(InputError, match="than this model casts now"):
        certify(path)


def test_a_callable_that_changed_a_little(tmp_path, monkeypatch):
    """The first input's votes are unanimous before and after; a divided one gives the change away."""
    path = tmp_path / "run.smoothcert"
    images = np.stack([np.full((1, 4, 4), v, dtype=np.float32) for v in (0.9, 0.5)])

    def threshold(batch):
        heard.call(batch)
        return (batch.mean(axis=(1, 2, 3)) > 0.5).astype(int)

    with interrupted_after(40):
        certify(path, threshold, Items(images), num_classes=3)
    monkeypatch.setattr(heard, "call", lambda batch: np.subtract(batch, 0.02, out=batch))
    with pytest.raises(InputError, match="other votes for its input number 1"):
        certify(path, threshold, Items(images), num_classes=3)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")
def test_memory_does_not_grow_with_n():
    """Peak memory of 224 × 224 × 3 inputs, a process each: 10 times the draws, less than one batch more."""
    script = (
        "import pathlib, re, sys, numpy as np, torch; from smoothcert import SmoothedClassifier;"
        "torch.set_num_threads(1); x = np.zeros((3, 224, 224), dtype=np.float32);"
        "s = SmoothedClassifier(lambda b: b[:, :, 0, 0], sigma=1.0, num_classes=3, batch=100, seed=0);"
        "s.certify(x, n=int(sys.argv[1]));"  # getrusage would tell of this process, too, which started that one
        "print(re.search(r'VmHWM:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text())[1])"
    )
    peaks = [
        int(subprocess.run([sys.executable, "-c", script, n], capture_output=True, check=True).stdout)
        for n in ("100", "1000")
    ]
    one_batch = 100 * 3 * 224 * 224 * 4 / 1024
    assert peaks[1] - peaks[0] < one_batch


class TestFile:
    def test_one_plain_file_is_left(self, tmp_path):
        certify(tmp_path / "run.smoothcert")
        assert [p.name for p in tmp_path.iterdir()] == ["run.smoothcert"]

    def test_thumbnails(self, tmp_path):
        from io import BytesIO

        from PIL import Image

        certify(tmp_path / "with.smoothcert", n=100)
        certify(tmp_path / "without.smoothcert", n=100, images=False)
        with RunFile.open_to_read(tmp_path / "with.smoothcert") as file:
            picture = np.asarray(Image.open(BytesIO(file.thumbnail(3))))
        np.testing.assert_allclose(picture, np.round(255 * IMAGES[3, 0]))
        with RunFile.open_to_read(tmp_path / "without.smoothcert") as file:
            assert file.thumbnail(3) is None

    def test_a_newer_format_is_refused(self, tmp_path):
        path = tmp_path / "run.smoothcert"
        certify(path, n=100)
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA user_version = 99")
        with pytest.raises(InputError, match="newer smoothcert \\(format 99\\)"):
            open_run(path)

    @pytest.mark.parametrize("column", ["counts", "draws", "first"])
    def test_a_changed_row_is_reported(self, tmp_path, column):
        path = tmp_path / "run.smoothcert"
        certify(path)
        with sqlite3.connect(path) as db:
            if column == "counts":
                db.execute("UPDATE votes SET counts = CAST(substr(counts, 1, 4) || x'07' || substr(counts, 6) AS BLOB)")
            else:
                db.execute(f"UPDATE votes SET {column} = {column} + 1 WHERE position = 4")
        with pytest.raises(RunError, match="damaged votes for input number"):
            len(open_run(path))

    def test_a_changed_claim_is_reported(self, tmp_path):
        path = tmp_path / "run.smoothcert"
        certify(path, radii=[0.1], max_n=500, n=None, method=None)
        with sqlite3.connect(path) as db:
            db.execute("UPDATE claims SET radius = 9 WHERE position = 4")
        with pytest.raises(RunError, match="a damaged claim for input number 4"):
            len(open_run(path))

    def test_what_is_no_run_file(self, tmp_path):
        text = tmp_path / "notes.txt"
        text.write_text("not a database" * 100)
        other = tmp_path / "other.db"
        with sqlite3.connect(other) as db:
            db.execute("CREATE TABLE t (x)")
        for path in (text, other):
            before = path.read_bytes()
            with pytest.raises(InputError, match="is not a smoothcert run file"):
                open_run(path)
            with pytest.raises(InputError, match="is not a smoothcert run file"):
                certify(path)
            assert path.read_bytes() == before
        with pytest.raises(InputError, match="there is no run file"):
            open_run(tmp_path / "none")

    @pytest.mark.parametrize("folder", ["missing", "/proc"])
    def test_a_folder_that_cannot_be_written(self, tmp_path, folder):
        with pytest.raises(InputError, match=r"does not exist|cannot be opened"):
            certify(tmp_path / folder / "run.smoothcert")
