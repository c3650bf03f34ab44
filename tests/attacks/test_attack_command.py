"""`smoothcert attack` as a user meets it, and the safety net on run files that were tampered with."""

import csv
import json
import shutil
import signal
import sqlite3
import sys

import numpy as np
import pytest

from smoothcert import RunError, SmoothedClassifier, open_run
from smoothcert.cli import perform
from smoothcert.models import load_model
from smoothcert.store.schema import Claim, meta_checksum, pack_claim

MODELS = """
import signal, torch

def halves():
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
    with torch.no_grad():
        module[1].weight.copy_(torch.stack([-torch.ones(16), torch.ones(16)]))
        module[1].bias.copy_(torch.tensor([8.0, -8.0]))
    return module

def others():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))

def labels():
    class Labels(torch.nn.Module):
        def forward(self, x):
            return (x.flatten(1).mean(1) > 0.5).long()
    return Labels()

class Interrupted(torch.nn.Module):
    calls = 0
    def forward(self, x):
        self.calls += 1
        if self.calls > 20:
            signal.raise_signal(signal.SIGINT)
        return x.flatten(1)[:, :2]
"""
"""halves: class 1 where the mean of the 16 values is above ½, so the distance is 4 |mean − ½|."""

MEANS = np.array([0.2, 0.35, 0.42, 0.58, 0.65, 0.8, 0.45])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models, data, and a run whose radii were claimed as its draws ended."""
    folder = tmp_path_factory.mktemp("attack")
    (folder / "halves.py").write_text(MODELS)
    images = np.broadcast_to(MEANS[:, None, None, None], (7, 1, 4, 4)).astype(np.float32)
    np.savez(folder / "data.npz", x=images, y=[0, 0, 0, 1, 1, 1, 1])
    np.savez(folder / "others.npz", x=images + np.float32(0.01), y=[0, 0, 0, 1, 1, 1, 1])
    return folder


@pytest.fixture
def attack(folder, monkeypatch, capfd):
    """Runs the command in that folder; returns its exit code and what it printed."""

    def run(*arguments):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setattr(sys, "argv", ["smoothcert", "attack", *map(str, arguments)])
        handlers = [(s, signal.getsignal(s)) for s in (signal.SIGTERM, signal.SIGINT)]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            perform()
            code = 0
        except SystemExit as exit:
            code = exit.code or 0
        finally:
            for number, handler in handlers:
                signal.signal(number, handler)
        said = capfd.readouterr()
        assert "Traceback" not in said.err
        assert max(map(len, said.out.splitlines()), default=0) <= 80
        return code, " ".join((said.out + said.err).split())

    return run


@pytest.fixture(scope="module")
def run(folder):
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("halves_of_the_run", folder / "halves.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    smoothed = SmoothedClassifier(module.halves(), sigma=0.5, num_classes=2, batch=500, engine="torch", seed=0)
    return smoothed.certify_dataset(folder / "data.npz", width=0.1, max_n=3_000, out=folder / "run.smoothcert")


def tampered(run, name, factor):
    """The run with every claimed radius and σ multiplied, which goes together, and checksums that fit."""
    path = run.path.with_name(name)
    shutil.copy(run.path, path)
    with sqlite3.connect(path) as db:
        for row in db.execute("SELECT * FROM claims").fetchall():
            position, prediction, radius, n, seconds, _ = row
            values = pack_claim(Claim(position, prediction, factor * radius, n, seconds))
            db.execute("DELETE FROM claims WHERE position = ?", (position,))
            db.execute(f"INSERT INTO claims VALUES ({','.join('?' * len(values))})", values)
        meta = dict(db.execute("SELECT key, value FROM meta WHERE key != 'checksum'"))
        plan = json.loads(meta["plan"])
        plan["classifier"]["sigma"] *= factor
        meta["plan"] = json.dumps(plan)
        for key, value in (("plan", meta["plan"]), ("checksum", meta_checksum(meta))):
            db.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))
    return path


def test_help_shows_examples(attack):
    code, said = attack("--help")
    assert code == 0
    assert "Example: smoothcert attack digits_cnn digits --eps" in said


def test_robust_accuracy_and_smallest_perturbations(folder, attack):
    """Input 6 has the mean 0.45 and the label 1: it is wrong without any perturbation."""
    arguments = ("halves:halves", "data.npz", "--eps", "1,0.4")
    code, said = attack(*arguments, "--out", "attack.json")
    assert code == 0
    record = json.loads((folder / "attack.json").read_text())
    exact = 4 * abs(MEANS - 0.5)
    for row, distance in zip(record["inputs"][:6], exact, strict=False):
        assert row["norm"] is None if distance > 1 else row["norm"] == pytest.approx(distance, rel=0.01)
    assert record["inputs"][6] == {"id": "6", "label": 1, "norm": 0.0}
    assert record["robust_accuracy"] == pytest.approx({"0.4": 4 / 7, "1": 2 / 7})
    assert "0.571" in said
    assert "not a proof: a better attack may leave less" in said
    assert attack(*arguments, "--out", "attack.csv")[0] == 0
    with (folder / "attack.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["robust at 0.4"] for row in rows] == ["1", "1", "0", "0", "1", "1", "0"]


def test_the_smoothed_classifier(folder, attack):
    code, said = attack("halves:halves", "data.npz", "--eps", "0.4,1", "--sigma", "0.1", "--out", "smoothed.json")
    assert code == 0
    assert "smoothed classifier, gaussian noise σ = 0.1" in said
    norms = [row["norm"] for row in json.loads((folder / "smoothed.json").read_text())["inputs"]]
    assert norms[:2] == [None, pytest.approx(0.6, abs=0.03)]


def test_the_smoothed_classifier_of_soft_votes(folder, attack):
    """By symmetry its boundary is that of the labels."""
    soft = ("--sigma", "0.1", "--votes", "softmax", "--temperature", "0.5")
    code, said = attack("halves:halves", "data.npz", "--eps", "0.4,1", *soft, "--out", "soft.json")
    assert code == 0
    assert "σ = 0.1, softmax votes" in said
    record = json.loads((folder / "soft.json").read_text())
    assert (record["votes"], record["temperature"], record["steps"], record["n"]) == ("softmax", 0.5, 20, 1000)
    assert [row["norm"] for row in record["inputs"]][:2] == [None, pytest.approx(0.6, abs=0.03)]


def test_no_certificate_of_a_run_is_broken(run, attack):
    certified = [c for c in run.certificates() if not c.abstained]
    code, said = attack("halves:halves", "data.npz", "--against", "run.smoothcert")
    assert code == 0
    assert len(certified) >= 4
    assert f"None was broken. {len(certified)} certified inputs were searched" in said
    assert f"at most {0.001 * len(certified):.2g} would be called broken by chance" in said
    assert "This is a search, not a proof." in said


def test_a_radius_that_is_three_times_too_large_is_caught(folder, run, attack):
    path = tampered(run, "tampered.smoothcert", 3)
    code, said = attack("halves:halves", "data.npz", "--against", path.name)
    assert code == 1
    assert "BROKEN" in said
    saved = np.load(folder / "tampered.violations.npz")
    exact = 4 * abs(MEANS - 0.5)
    claimed = {i: c for i, c in zip(run.ids, open_run(path).certificates(), strict=True) if not c.abstained}
    should_break = {i for i, c in claimed.items() if c.radius > exact[int(i)] + 0.7}
    assert len(should_break) >= 3
    assert should_break <= set(saved["id"])
    for i, delta, norm, radius in zip(saved["id"], saved["delta"], saved["norm"], saved["radius"], strict=True):
        assert f"input {i}:" in said
        assert np.linalg.norm(delta) == pytest.approx(norm)
        assert exact[int(i)] < norm < radius == claimed[i].radius


def test_a_run_of_the_shipped_network_on_grid_noise_holds(tmp_path, attack):
    network = load_model("digits_cnn", device="cpu")
    path = tmp_path / "digits.smoothcert"
    smoothed = SmoothedClassifier(network, sigma=0.25, num_classes=10, noise="grid", levels=16, batch=100, seed=0)
    smoothed.certify_dataset("digits", n=1_000, limit=5, out=path)
    code, said = attack("digits_cnn", "digits", "--against", path, "--n", 300)
    assert code == 0
    assert "None was broken" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("halves:others", "data.npz", "--against", "run.smoothcert"), "is a run of another model"),
        (("halves:halves", "others.npz", "--against", "run.smoothcert"), "other data (files, --resize or --crop"),
        (("halves:halves", "data.npz", "--against", "none.smoothcert"), "there is no run file"),
        (("halves:halves", "data.npz", "--against", "run.smoothcert", "--sigma", "1"), "leave out what says otherwise"),
        (("halves:halves", "data.npz", "--against", "run.smoothcert", "--votes", "softmax"), "leave out what says"),
        (("halves:halves", "data.npz", "--eps", "1", "--levels", "8"), "--levels says nothing of the model itself"),
        (("halves:halves", "data.npz"), "say where to search"),
        (("halves:halves", "data.npz", "--eps", "0.5", "--against", "run.smoothcert"), "say where to search"),
        (("halves:halves", "data.npz", "--eps", "far"), "is no list of numbers"),
        (("halves:halves", "data.npz", "--eps", "-1"), "eps must be positive"),
        (("halves:halves", "data.npz", "--eps", "1", "--out", "a.txt"), "neither .json nor .csv: choose another --out"),
        (("halves:labels", "data.npz", "--eps", "1"), "returns labels, which have no gradient"),
        (("model.onnx", "data.npz", "--eps", "1"), "only a torch module gives"),
    ],
)
def test_bad_calls(run, attack, arguments, message):
    code, said = attack(*arguments)
    assert message in said
    assert code == 2


def test_an_interrupt_ends_it_in_a_sentence(folder, attack):
    code, said = attack("halves:Interrupted", "data.npz", "--eps", "1", "--out", "never.json")
    assert code == 1
    assert "Stopped. Nothing was written." in said
    assert not (folder / "never.json").exists()


def test_claims_without_fitting_checksums_are_refused_before_any_search(run):
    path = tampered(run, "clumsy.smoothcert", 3)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE claims SET radius = radius * 2")
    with pytest.raises(RunError, match="damaged claim"):
        open_run(path).certificates()
