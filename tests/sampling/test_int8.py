"""A network of integers is certified, resumed and deployed as itself."""

import logging
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import types

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from smoothcert import InputError, SmoothedClassifier, open_run
from smoothcert.attacks import search_run
from smoothcert.cli import app
from smoothcert.data import Dataset, digits
from smoothcert.models import build, load_model
from smoothcert.modules import evaluated
from smoothcert.sampling.engines import Engines, Quantised
from smoothcert.sampling.engines.module import state_of
from smoothcert.sampling.engines.onnx import exported
from smoothcert.sampling.engines.quantising import RECIPES, make
from some import some

pytest.importorskip("onnxruntime", reason="the extra smoothcert[onnx] is not installed")

ASKED = {"n": 500, "limit": 12}


@pytest.fixture(scope="module")
def data():
    return digits(train=False)


def classifier(model, **setting):
    how = {"sigma": 0.25, "num_classes": 10, "noise": "grid", "levels": 16, "batch": 200, "seed": 5}
    return SmoothedClassifier(model, **how, **setting)


@pytest.fixture(scope="module")
def model():
    return load_model("digits_cnn", device="cpu")


@pytest.fixture(scope="module")
def whole(model, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run.smoothcert"
    return classifier(model, engine="onnx+int8").certify_dataset(data, out=out, **ASKED)


@pytest.fixture
def run(whole, tmp_path):
    shutil.copytree(whole.path.parent, tmp_path, dirs_exist_ok=True)
    return open_run(tmp_path / whole.path.name)


def test_the_share_of_equal_labels_is_told_before_the_run(model, data, tmp_path, caplog):
    caplog.set_level(logging.INFO, "smoothcert")
    classifier(model, engine="onnx+int8").certify_dataset(data, out=tmp_path / "run.smoothcert", **ASKED)
    said = [record.getMessage() for record in caplog.get_records("call")]
    pattern = re.compile(r"onnx\+int8: ([\d.]+) % of 1,000 labels under noise are those of float32")
    (share,) = [found[1] for found in map(pattern.match, said) if found]
    assert 95 < float(share) <= 100


def test_the_file_beside_the_run_is_the_classifier_that_was_certified(run, data, tmp_path):
    path = tmp_path / "run.int8.onnx"
    network = classifier(path)
    engine = run.plan.setting.machine
    assert (engine.engine, engine.precision, engine.network) == ("onnx+int8", "int8", network.engine.fingerprint)
    again = network.certify_dataset(data, out=tmp_path / "again.smoothcert", **ASKED)
    assert np.array_equal(again.tally.selections, run.tally.selections)
    assert [c.radius for c in again.certificates()] == [c.radius for c in run.certificates()]
    certified = [c.prediction for c in run.certificates()]
    assert network.predict_batch([data[int(i)].array for i in run.ids]) == certified


def test_a_run_goes_on_with_the_network_it_was_started_with(model, data, run, tmp_path):
    def stop(draws, done):
        raise KeyboardInterrupt

    out = tmp_path / "stopped.smoothcert"
    with pytest.raises(KeyboardInterrupt):
        classifier(model, engine="onnx+int8").certify_dataset(data, out=out, on_progress=stop, **ASKED)
    kept = out.with_name("stopped.int8.onnx").read_bytes()
    went_on = classifier(model)
    assert went_on.certify_dataset(data, out=out, **ASKED).finished
    assert out.with_name("stopped.int8.onnx").read_bytes() == kept
    assert (
        open_run(out).plan.setting.machine.network == classifier(out.with_name("stopped.int8.onnx")).engine.fingerprint
    )


def test_another_network_is_refused(model, data, run, tmp_path):
    path = tmp_path / "run.int8.onnx"
    path.write_bytes(path.read_bytes() + b"\0")
    again = classifier(model, engine="onnx+int8")
    with pytest.raises(InputError, match=r"is not the network that .* was started with"):
        again.certify_dataset(data, out=run.path, **ASKED)
    with pytest.raises(InputError, match=r"is not the network that .* was started with"):
        search_run(model, data, run, limit=2, steps=1)
    path.unlink()
    with pytest.raises(InputError, match=r"cannot be read .* put it back"):
        again.certify_dataset(data, out=run.path, **ASKED)


@pytest.mark.parametrize("lying", ["a file", "a folder", "a link"])
def test_what_lies_where_the_network_goes_is_neither_replaced_nor_removed(model, data, tmp_path, lying):
    taken, victim = tmp_path / "run.int8.onnx", tmp_path / "victim"
    victim.write_bytes(b"precious")
    if lying == "a file":
        taken.write_bytes(b"precious")
    elif lying == "a folder":
        taken.mkdir()
    else:
        taken.symlink_to(victim)
    before = {path: path.lstat().st_ino for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=r"run\.int8\.onnx exists already: move it away, or choose another `out`"):
        classifier(model, engine="onnx+int8").certify_dataset(data, out=tmp_path / "run.smoothcert", **ASKED)
    assert {path: path.lstat().st_ino for path in tmp_path.iterdir()} == before
    assert victim.read_bytes() == b"precious"


def test_the_network_of_another_run_is_not_replaced(model, data, run, tmp_path):
    """Both runs would have theirs under one name."""
    kept = (tmp_path / "run.int8.onnx").read_bytes()
    with pytest.raises(InputError, match="exists already"):
        classifier(build("digits_cnn"), engine="onnx+int8").certify_dataset(data, out=tmp_path / "run", **ASKED)
    assert (tmp_path / "run.int8.onnx").read_bytes() == kept
    assert {path.name for path in tmp_path.iterdir()} == {"run.smoothcert", "run.int8.onnx"}


class Ending(Dataset):
    """Digits that cannot be read any more once a file is there."""

    def __init__(self, data, file):
        self.data, self.file = data, file
        self.description, self.classes = data.description, data.classes

    @property
    def fingerprint(self):
        return self.data.fingerprint

    def __len__(self):
        return len(self.data)

    def stored(self, row):
        if self.file.exists():
            raise KeyboardInterrupt
        return self.data.stored(row)


def test_a_run_that_fails_before_its_first_draw_takes_with_it_what_it_has_written(model, data, run, tmp_path):
    out = tmp_path / "new" / "run.smoothcert"
    out.parent.mkdir()
    with pytest.raises(KeyboardInterrupt):
        classifier(model, engine="onnx+int8").certify_dataset(Ending(data, out), out=out, **ASKED)
    assert list(out.parent.iterdir()) == []
    network = out.with_name("run.int8.onnx")
    network.write_bytes((tmp_path / "run.int8.onnx").read_bytes())
    with pytest.raises(KeyboardInterrupt):
        classifier(model, engine="onnx+int8").certify_dataset(Ending(data, out), out=out, **ASKED)
    assert list(out.parent.iterdir()) == [network]


KILLED = """
import os, signal, sys
from smoothcert.cli import main

def kill(event, given):
    if event == "sqlite3.connect" and str(given[0]).endswith("run.smoothcert"):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill)
main()
"""


@pytest.mark.slow
def test_a_run_that_is_killed_as_soon_as_it_is_there_goes_on(tmp_path):
    asked = [
        "certify",
        "digits_cnn",
        "digits",
        "--sigma",
        "0.25",
        "--engine",
        "onnx+int8",
        "--limit",
        "2",
        "--n",
        "100",
    ]
    command = [*asked, "--out", str(tmp_path / "run.smoothcert")]
    ended = subprocess.run([sys.executable, "-c", KILLED, *command], timeout=600)
    assert ended.returncode == -signal.SIGKILL
    assert len(open_run(tmp_path / "run.smoothcert")) == 0
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 0, ended.output
    assert open_run(tmp_path / "run.smoothcert").finished


PLANTS = {
    "a pipe": lambda path, whole: os.mkfifo(path),
    "a link to a device": lambda path, whole: path.symlink_to("/dev/zero"),
    "a link to the network": lambda path, whole: path.symlink_to(whole),
    "a folder": lambda path, whole: path.mkdir(),
    "3 GB": lambda path, whole: path.touch() or os.truncate(path, 3 << 30),
}


@pytest.mark.parametrize("plant", some(PLANTS))
def test_what_is_planted_in_its_place_is_not_read(model, data, run, tmp_path, plant):
    """A pipe would be waited for, and a device fill the memory."""
    path, whole = tmp_path / "run.int8.onnx", tmp_path / "whole.onnx"
    path.rename(whole)
    PLANTS[plant](path, whole)
    with pytest.raises(InputError, match=r"cannot be read \(no plain file of at most 2 GB\): put it back"):
        classifier(model).certify_dataset(data, out=run.path, **ASKED)
    run.path.unlink()
    with pytest.raises(InputError, match="exists already: move it away"):
        classifier(model, engine="onnx+int8").certify_dataset(data, out=run.path, **ASKED)


def test_attacks_judge_by_the_network_of_the_run(model, data, run):
    search = search_run(model, data, run, limit=3, steps=2)
    assert (search.searched, search.violations) == (3, [])


def test_one_classifier_has_one_network(model, data, tmp_path):
    """Calibrated on the data that are given, and the same for all that is asked of it; a copy has it, too."""
    smoothed = classifier(model, engine="onnx+int8", calibration=digits(train=True))
    x = data[0].array
    counts = smoothed.count(x, 200)
    run = smoothed.certify_dataset(data, out=tmp_path / "run.smoothcert", **ASKED)
    assert run.plan.setting.machine == smoothed.engine.identity
    fresh = pickle.loads(pickle.dumps(classifier(model, engine="onnx+int8", calibration=digits(train=True))))
    assert np.array_equal(fresh.count(x, 200), counts)
    assert pickle.loads(pickle.dumps(smoothed)).engine.identity == smoothed.engine.identity


def test_weights_that_change_are_refused(data):
    module = build("digits_cnn").eval()
    smoothed = classifier(module, engine="onnx+int8")
    smoothed.count(data[0].array, 100)
    next(module.parameters()).data += 1
    with pytest.raises(InputError, match="has changed since it was quantised"):
        smoothed.count(data[0].array, 100)


class Signed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head, self.sign = torch.nn.Linear(64, 10), 1.0

    def forward(self, x):
        return self.sign * SIGN.value * self.head(x.flatten(1))


SIGN = types.ModuleType("a module of settings")
SIGN.value = 1.0


def test_a_number_that_changes_is_refused(data, tmp_path):
    """In a run, in memory, and in a copy that was made after the change; a copy from before it goes on."""
    module = Signed().eval()
    smoothed = classifier(module, engine="onnx+int8")
    before = smoothed.count(data[0].array, 100)
    copied = pickle.loads(pickle.dumps(smoothed))
    module.sign = -1.0
    for changed in (smoothed, pickle.loads(pickle.dumps(smoothed))):
        with pytest.raises(InputError, match="has changed since it was quantised"):
            changed.certify_dataset(data, out=tmp_path / "run.smoothcert", **ASKED)
        with pytest.raises(InputError, match="has changed since it was quantised"):
            changed.count(data[0].array, 100)
    assert list(tmp_path.iterdir()) == []
    assert copied.count(data[0].array, 100).sum() == before.sum()


def test_what_the_model_reads_elsewhere_is_compared_when_a_run_begins(data, tmp_path, monkeypatch):
    smoothed = classifier(Signed().eval(), engine="onnx+int8")
    smoothed.count(data[0].array, 100)
    monkeypatch.setattr(SIGN, "value", -1.0)
    with pytest.raises(InputError, match="has changed since it was quantised"):
        smoothed.certify_dataset(data, out=tmp_path / "run.smoothcert", **ASKED)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--engine", "onnx+int8", "--shard", "1/2", "--seed", "1"], "each shard would make a network of its own"),
        (["--engine", "onnx+int8", "--workers", "1"], "makes its network in one process"),
        (["--calibration", "digits"], "--calibration is for the engine onnx+int8"),
        (["--engine", "onnx+int8", "--votes", "softmax", "--lipschitz", "2"], "computes in int8, whose steps"),
    ],
)
def test_what_it_does_not_go_with_is_one_sentence(tmp_path, options, says):
    out = tmp_path / "run.smoothcert"
    asked = ["certify", "digits_cnn", "digits", "--sigma", "0.25", "--limit", "2", "--n", "100", "--out", str(out)]
    ended = CliRunner().invoke(app, [*asked, *options])
    assert says in f"{ended.output} {ended.exception}".replace("`calibration`", "--calibration")
    assert ended.exit_code != 0
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_quantised(tmp_path, model, run):
    with pytest.raises(InputError, match="quantises torch modules"):
        classifier(tmp_path / "run.int8.onnx", engine="onnx+int8")


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_weights_have_seven_bits(model, data, recipe):
    """So that the sum of two products of a weight and an activation fits into 16 bits on every CPU."""
    onnx = pytest.importorskip("onnx")
    rows = torch.from_numpy(np.stack([data[i].array for i in range(10)]))
    content = make(exported(model, (10, 1, 8, 8)), [rows], recipe)
    found = [t for t in onnx.ModelProto.FromString(content).graph.initializer if t.data_type == onnx.TensorProto.INT8]
    weights = [onnx.numpy_helper.to_array(t) for t in found if t.dims and "zero_point" not in t.name]
    assert weights
    assert max(np.abs(w.astype(int)).max() for w in weights) <= 64
    engines = Engines(model)
    engines.quantised = Quantised(content, state_of(evaluated(model)), "")
    engine = engines.open("onnx+int8")
    with engine.ready():
        assert engine(rows).shape == (10, 10)
