"""Shards, merge, doctor and --check-determinism from the command line."""

import numpy as np
import pytest

from cli.test_commands import smoothcert
from smoothcert import open_run

MODELS = """
import numpy as np

weights = np.random.default_rng(0).normal(size=(16, 3))
calls = (number for number in range(10_000))  # how far it is, no fingerprint sees

def linear():
    return lambda batch: batch.reshape(len(batch), -1) @ weights

def moody():
    return lambda batch: batch.reshape(len(batch), -1) @ weights * (-1 if next(calls) == 12 else 1)
"""
CERTIFY = ("certify", "files:linear", "data.npz", "--sigma", "0.25", "--n", "300", "--batch", "100", "--seed", "0")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "files.py").write_text(MODELS)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.random((7, 1, 4, 4)).astype(np.float32), y=np.arange(7) % 3)
    return tmp_path


def test_shards_and_merge(folder):
    for i in (1, 2, 3):
        result = smoothcert(folder, *CERTIFY, "--shard", f"{i}/3")
        assert result.returncode == 0, result.stderr
        assert f"Votes are in linear-data-sigma0.25-{i}of3.smoothcert" in result.stdout
    shown = smoothcert(folder, "show", "linear-data-sigma0.25-2of3.smoothcert").stdout
    assert "2 of 2 inputs" in shown
    parts = [f"linear-data-sigma0.25-{i}of3.smoothcert" for i in (1, 2, 3)]
    missing = smoothcert(folder, "merge", *parts[1:], "-o", "whole.smoothcert")
    assert missing.returncode == 2
    assert missing.stderr == "smoothcert: of 3 shards there is no 1/3: certify and give all of them.\n"
    result = smoothcert(folder, "merge", *parts, "-o", "whole.smoothcert")
    assert result.returncode == 0
    assert "7 inputs" in result.stdout
    assert smoothcert(folder, *CERTIFY, "--out", "unsplit.smoothcert").returncode == 0
    whole, unsplit = open_run(folder / "whole.smoothcert"), open_run(folder / "unsplit.smoothcert")
    assert whole.plan == unsplit.plan
    assert whole.certificates() == unsplit.certificates()


@pytest.mark.parametrize("shard", ["2", "a/b", "0/3", "4/3", "²/3", "1/99"])
def test_what_is_no_shard(folder, shard):
    result = smoothcert(folder, *CERTIFY, "--shard", shard)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1


def test_doctor(folder):
    smoothcert(folder, *CERTIFY, "--out", "run.smoothcert")
    healthy = smoothcert(folder, "doctor", "run.smoothcert")
    assert healthy.returncode == 0
    assert healthy.stdout == "run.smoothcert is healthy; 7 inputs and 14 rows of votes are intact.\n"
    before = open_run(folder / "run.smoothcert").certificates()
    content = (folder / "run.smoothcert").read_bytes()
    (folder / "run.smoothcert").write_bytes(content.replace(b"estimation", b"estimatio!", 1))
    shown = smoothcert(folder, "show", "run.smoothcert")
    assert shown.returncode == 1
    assert "run.smoothcert has damaged votes" in shown.stderr
    assert "`smoothcert doctor RUN --out NEW` copies what is intact" in shown.stderr
    damaged = smoothcert(folder, "doctor", "run.smoothcert", "--out", "saved.smoothcert")
    assert damaged.returncode == 1
    assert "run.smoothcert is damaged" in damaged.stdout
    assert smoothcert(folder, *CERTIFY, "--out", "saved.smoothcert").returncode == 0
    assert open_run(folder / "saved.smoothcert").certificates() == before


def test_a_model_that_changes_its_mind_once(folder):
    command = ("certify", "files:moody", *CERTIFY[2:], "--out", "run.smoothcert")
    result = smoothcert(folder, *command, "--check-determinism")
    assert result.returncode == 1
    assert "run.smoothcert certifies nothing: its model is not one function of one input" in result.stderr
    assert "certified accuracy" not in result.stdout
    for reader in (("show",), ("recertify",), ("export",), ("report",)):
        read = smoothcert(folder, *reader, "run.smoothcert")
        assert read.returncode == 1, reader
        assert "certifies nothing" in read.stderr
        assert "certified accuracy" not in read.stdout
    assert smoothcert(folder, "doctor", "run.smoothcert", "--out", "copy.smoothcert").returncode == 0
    assert "certifies nothing" in smoothcert(folder, "show", "copy.smoothcert").stderr
    assert "certifies nothing" in smoothcert(folder, *command).stderr
