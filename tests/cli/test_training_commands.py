"""From a network that does not stand noise to certificates, as the documentation tells it: two commands."""

import numpy as np
import pytest
from typer.testing import CliRunner

import smoothcert as sc
from smoothcert.cli import build
from smoothcert.data import digits
from smoothcert.summary import summarise
from smoothcert.training import train


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with a network trained without noise, and training pictures without labels."""
    folder, data = tmp_path_factory.mktemp("work"), digits(train=True)
    np.savez(folder / "pictures.npz", x=np.stack([data[row].array for row in range(len(data))]))
    plan = {"sigma": 0.0, "epochs": 8, "batch": 64, "rate": 0.1, "augment": False, "device": "cpu"}
    train("digits_cnn", "digits", out=folder / "plain", **plan)
    (folder / "own_digits.py").write_text("import smoothcert as sc\nbuild = lambda: sc.models.build('digits_cnn')\n")
    return folder


def run(folder, monkeypatch, line):
    monkeypatch.chdir(folder)
    name = line.split()[0]
    result = CliRunner().invoke(build((name,), listed=("demo",)), line.split())
    assert result.exit_code == 0, result.output
    return result.output


def average_radius(path):
    found = sc.open_run(path)
    return summarise(found.certificates(), found.labels, [0.25]).average_radius


@pytest.mark.parametrize(("epochs", "limit"), [(1, 12), pytest.param(6, 60, marks=pytest.mark.slow)])
def test_denoise_then_certify_predict_and_attack(folder, monkeypatch, epochs, limit):
    """A minute of training is enough for larger radii."""
    plain, out = "--weights plain/last.safetensors", f"after{epochs}"
    trained = f"--sigma 0.5 --epochs {epochs} --batch 64 --no-augment --out {out}"
    said = run(folder, monkeypatch, f"denoise digits_cnn pictures.npz {plain} {trained}")
    denoiser = f"--denoiser {out}/last.safetensors"
    assert f"certify digits_cnn DATA {plain} {denoiser} --sigma 0.5" in said
    asked = f"digits_cnn digits {plain} --sigma 0.5 --limit {limit} --seed 0 --engine torch"
    run(folder, monkeypatch, f"certify {asked} --n 500 --out without{epochs}.smoothcert")
    run(folder, monkeypatch, f"certify {asked} --n 500 {denoiser} --out with{epochs}.smoothcert")
    assert sc.open_run(folder / f"with{epochs}.smoothcert").info.model == "digits_cnn+denoiser"
    without, denoised = (average_radius(folder / f"{name}{epochs}.smoothcert") for name in ("without", "with"))
    assert denoised > without or epochs == 1
    assert f"{limit} inputs" in run(folder, monkeypatch, f"predict {asked} --max-n 200 {denoiser}")
    said = run(folder, monkeypatch, f"attack digits_cnn digits --eps 0.5 --limit 5 {denoiser}")
    assert "robust accuracy" in said


def test_a_factory_is_tuned_from_its_weights(folder, monkeypatch):
    how = "--weights plain/last.safetensors --sigma 0.5 --epochs 2 --no-augment --freeze 0 --out tuned"
    said = run(folder, monkeypatch, f"train own_digits:build digits {how}")
    assert "certify own_digits:build DATA --weights tuned/best.safetensors" in said
    files = (folder / name / "last.safetensors" for name in ("plain", "tuned"))
    first, tuned = (sc.models.load_model("own_digits:build", weights=file) for file in files)
    assert (first[0].weight == tuned[0].weight).all()
    assert not (first[2].weight == tuned[2].weight).all()
