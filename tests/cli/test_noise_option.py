"""Which noise the command line takes, and what it says about it."""

import numpy as np
import pytest
from typer.testing import CliRunner

from smoothcert import InputError, open_run
from smoothcert.cli import app

ASKED = ("--sigma", "0.25", "--limit", "2", "--batch", "50", "--engine", "torch")
QUICK = (*ASKED, "--n", "100")


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    pixels = np.random.default_rng(0).integers(0, 256, size=(2, 8, 8), dtype=np.uint8)
    np.savez("pixels.npz", x=pixels[:, None], y=[0, 1])
    np.savez("floats.npz", x=np.random.default_rng(0).random((2, 1, 8, 8)), y=[0, 1])
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.mark.parametrize(
    ("data", "options", "noise", "levels"),
    [
        ("digits", (), "grid", 16),
        ("pixels.npz", (), "grid", 255),
        ("pixels.npz", ("--levels", "510"), "grid", 510),
        ("pixels.npz", ("--noise", "gaussian"), "gaussian", None),
        ("floats.npz", (), "gaussian", None),
    ],
)
def test_data_on_a_grid_get_grid_noise_unless_told_otherwise(invoke, data, options, noise, levels):
    result = invoke("certify", "digits_cnn", data, *QUICK, *options, "--out", "run")
    assert result.exit_code == 0, result.output
    plan = open_run("run").plan
    assert (plan.classifier.noise, plan.classifier.levels, plan.noise_error > 0) == (noise, levels, noise == "grid")
    for output in (result.output, invoke("show", "run").output):
        assert f"noise: {noise}" in output
        assert (f"of 1/{levels}, error {plan.noise_error:.2g} taken off α" in output) == (noise == "grid")
        assert max(map(len, output.splitlines())) <= 80
    assert f"{noise} noise σ = 0.25" in invoke("predict", "digits_cnn", data, *ASKED, *options).output


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("floats.npz", ("--noise", "grid"), "input 0 has values that are no multiples of 1/255"),
        ("floats.npz", ("--noise", "gaussian", "--levels", "255"), "`levels` says nothing with gaussian noise"),
        ("pixels.npz", ("--noise", "pink"), "unknown noise 'pink': choose one of gaussian, grid"),
        ("pixels.npz", ("--levels", "0"), "levels must be a whole number of at least 1"),
        ("pixels.npz", ("--alpha", "1e-14"), "alpha = 1e-14 is not above"),
    ],
)
def test_what_is_refused_is_said_in_a_sentence_and_leaves_no_file(invoke, tmp_path, data, options, message):
    result = invoke("certify", "digits_cnn", data, *QUICK, *options, "--out", "run")
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
    assert not (tmp_path / "run").exists()
