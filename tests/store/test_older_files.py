"""Files of formats 1 and 2 say what they said when they were written, and go on where they were stopped."""

import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import interruptible
from interruptible import WEIGHTS, certify
from smoothcert import InputError, RunError, open_run
from smoothcert.plan import (
    Classifier,
    FixedN,
    Hardmax,
    Labels,
    Plan,
    Question,
    Selection,
    Setting,
    Softmax,
    Sparsemax,
    UntilRadii,
    UntilWidth,
)
from smoothcert.sampling.identity import Identity
from smoothcert.store.doctor import diagnose
from smoothcert.store.file import RunFile
from smoothcert.store.schema import VERSION, meta_checksum, plan_from_json

DATA = Path(__file__).parent.parent / "data"


def steps(batch):
    """Whole numbers for scores, so that shares of a vote are the same on every machine."""
    return np.round(4 * (batch.reshape(len(batch), -1) @ WEIGHTS))


steps.__module__ = "test_older_files"  # what stands for its weights in the files is its name
PLANS = {
    "labels": {"n": 830, "method": "union"},
    "adaptive": {"radii": [0.05, 0.15], "max_n": 1500, "n": None, "method": None},
    "softmax": {"n": 830, "votes": "softmax", "temperature": 2.0, "method": None},
}
"""What the runs in format-2-*.smoothcert were started with, labels where no votes are named; each was stopped about
halfway."""

TOLD = {
    "labels": [
        *(0.405757, 0.232062, 0.416234, 0.402218, 0.146221, 0.145668),
        *(0.072182, 0.247844, 0.515363, 0.0, 0.07074, 0.567609),
    ],
    "adaptive": [0.15, 0.15, 0.15, 0.15, 0.05, 0.05, 0.05, 0.15, 0.15, 0.0, 0.05, 0.15],
    "softmax": [
        *(0.343229, 0.192525, 0.366275, 0.37312, 0.142702, 0.112032),
        *(0.046227, 0.213944, 0.445557, 0.0, 0.079025, 0.506834),
    ],
}
"""The radii that the version which wrote these files proved of the whole runs."""

COMPLETE = {"labels": 6, "adaptive": 7, "softmax": 5}
DRAWN = [100, 200, 100, 100, 1500, 1500, 500, 200, 100, 100, 800, 100]
"""How many draws the adaptive run took to decide each input."""


def facts(run):
    """All that a run says of its inputs, but for times and the model's fingerprint."""
    told = [replace(c, classifier=replace(c.classifier, model="")) for c in run.certificates()]
    return run.ids, run.labels.tolist(), interruptible.votes(run), interruptible.others(run), told


def version(path):
    db = sqlite3.connect(path)
    number = db.execute("PRAGMA user_version").fetchone()[0]
    db.close()
    return number


@pytest.fixture
def stopped(tmp_path):
    """A copy of a file, drawn with the NumPy of this machine as far as the plan knows."""

    def copy(name):
        path = tmp_path / name
        shutil.copy(DATA / name, path)
        with sqlite3.connect(path) as db:
            meta = dict(db.execute("SELECT key, value FROM meta"))
            sealed = meta.pop("checksum", None) is not None
            meta["plan"] = json.dumps({**json.loads(meta["plan"]), "engine": f"callable on numpy {np.__version__}"})
            rows = {**meta, "checksum": meta_checksum(meta)} if sealed else meta
            db.executemany("REPLACE INTO meta VALUES (?, ?)", rows.items())
        db.close()
        return path

    return copy


def begun(path, empty):
    """The same run with nothing drawn yet: what it will draw is the noise of its version."""
    shutil.copy(path, empty)
    with sqlite3.connect(empty) as db:
        for table in ("votes", "claims", "inputs"):
            db.execute(f"DELETE FROM {table}")
    db.close()
    return empty


@pytest.mark.parametrize("name", PLANS)
def test_a_half_done_run_of_format_2_opens(name):
    path = DATA / f"format-2-{name}.smoothcert"
    before = path.read_bytes()
    run = open_run(path)
    assert run.ids == [str(i) for i in range(COMPLETE[name])]
    assert not run.finished
    assert [c.radius for c in run.certificates()] == pytest.approx(TOLD[name][: len(run)], abs=1e-4)
    if name == "adaptive":
        assert [c.n for c in run.certificates()] == DRAWN[: len(run)]
    assert diagnose(path).healthy
    assert path.read_bytes() == before
    assert version(path) == 2


@pytest.mark.parametrize("name", PLANS)
def test_a_half_done_run_of_format_2_goes_on(name, stopped, tmp_path):
    path = stopped(f"format-2-{name}.smoothcert")
    before = facts(open_run(path))
    empty = begun(path, tmp_path / "whole.smoothcert")
    run, whole = (certify(file, steps, **PLANS[name]) for file in (path, empty))
    assert run.finished
    assert facts(run) == facts(whole)
    assert run.plan == whole.plan
    assert run.plan.setting.stream == 1
    assert [c.radius for c in run.certificates()] == pytest.approx(TOLD[name], abs=1e-4)
    assert facts(run)[-1][: COMPLETE[name]] == before[-1]
    assert version(path) == version(whole.path) == VERSION == 3
    with RunFile.open_to_read(path) as now, RunFile.open_to_read(whole.path) as new:
        assert now._meta["plan"] == new._meta["plan"]
    assert diagnose(path).healthy


@pytest.mark.parametrize("name", PLANS)
def test_a_half_done_run_of_format_2_is_copied_as_one_of_today(name, stopped, tmp_path):
    path, saved = stopped(f"format-2-{name}.smoothcert"), tmp_path / "saved.smoothcert"
    assert diagnose(path, saved).healthy
    assert version(saved) == VERSION
    assert facts(open_run(saved)) == facts(open_run(path))
    assert open_run(saved).plan == open_run(path).plan
    assert facts(certify(saved, steps, **PLANS[name])) == facts(certify(path, steps, **PLANS[name]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sigma": 0.31}, "sigma = 0.3, not 0.31"),
        ({"n": 831}, "declared n = 830, not 831"),
        ({"method": "pairwise"}, "method = union, not pairwise"),
        ({"votes": "softmax", "method": None}, "votes = labels, not softmax"),
        ({"radii": [0.1], "n": None, "method": None}, "n = 830, not None"),
        ({"model": interruptible.classify}, "another model"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_run_of_format_2_goes_on_under_its_own_plan_alone(change, message, stopped):
    path = stopped("format-2-labels.smoothcert")
    before = facts(open_run(path))
    with pytest.raises(InputError, match=message):
        certify(path, **{"model": steps, **PLANS["labels"], **change})
    assert facts(open_run(path)) == before


WHOLE = {
    ("grid", ()): [0.58939, 0.482406, 0.61579, 0.58939, 0.61579, 0.569444, 0.370035, 0.392474, 0.457223, 0.569444],
    ("grid", ("mono",)): [0.589413, 0.48242, 0.615816, 0.589413, 0.615816, 0.556578, 0.340232, 0.382704],
    ("product", ()): [0.610666, 0.417371, 0.635721, 0.48679, 0.567279, 0.506001, 0.506876, 0.354437, 0.366531],
    ("product", ("mono",)): [0.615816, 0.448594, 0.615816, 0.524498, 0.556578, 0.533871, 0.556578, 0.370889, 0.387722],
    ("local", ()): [0.58092, 0.396497, 0.60488, 0.462646, 0.539465, 0.480965, 0.481805, 0.336594, 0.348092, 0.443826],
    ("local", ("estimated",)): [0.612549, 0.418958, 0.637435, 0.488378, 0.569157, 0.507512, 0.50922, 0.355603],
}
"""The first radii that it proved of whole runs: with grid noise, a product of constants, estimates of local ones."""


@pytest.mark.parametrize(("name", "asked"), WHOLE)
def test_a_whole_run_of_format_2_opens(name, asked):
    run = open_run(DATA / f"format-2-{name}.smoothcert")
    ways = {"mono": {"method": "mono"}, "estimated": {"estimated": True}}
    certificates = run.certificates(**{k: v for way in asked for k, v in ways[way].items()})
    told = WHOLE[name, asked]
    assert [c.radius for c in certificates][: len(told)] == pytest.approx(told, abs=1e-4)
    assert [c.prediction for c in certificates] == [2, 8, 2, 6, 6, 7, 1, 9, 8, 5]
    assert run.finished
    assert diagnose(run.path).healthy


def test_what_a_certificate_of_format_2_rests_on():
    grid, product, local = (open_run(DATA / f"format-2-{name}.smoothcert") for name in ("grid", "product", "local"))
    assert grid.certificates()[0].level == pytest.approx(0.0009999999997397913, rel=1e-15)
    assert grid.plan.classifier.levels == 16
    assert product.certificates()[0].lipschitz == pytest.approx(3.518029488808026)
    assert product.certificates(plain=True)[0].lipschitz is None
    assert local.certificates()[0].lipschitz is None
    assert local.certificates(estimated=True)[0].lipschitz == pytest.approx(3.4062471768456963)
    assert {c.basis for c in local.certificates(estimated=True)} == {"estimated"}
    assert str(grid.plan.setting.engine) == "torch (torch 2.13.0+cpu) on cpu in float32"


def test_a_file_of_format_1_opens():
    """A file written by version 0.1.0 says today what it said then."""
    run = open_run(DATA / "format-1.smoothcert")
    assert len(run) == 12
    assert [round(c.radius, 6) for c in run.certificates("mono")[:4]] == [0.387377, 0.249612, 0.424258, 0.425454]


def test_a_file_of_format_1_goes_on(stopped):
    path = stopped("format-1.smoothcert")
    before = facts(open_run(path))
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM votes WHERE position > 6")
        db.execute("DELETE FROM inputs WHERE position > 8")
    db.close()
    assert len(open_run(path)) == 7
    run = certify(path, method="cpm")
    assert facts(run) == before
    assert run.plan.setting.stream == 1
    assert version(path) == 3
    with RunFile.open_to_read(path) as file:
        assert all(file.inputs())


def test_damage_is_not_brought_up_to_date(stopped):
    """The seal of the older format is looked at before a new one is put in its place."""
    path = stopped("format-2-labels.smoothcert")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = replace(value, '0.3', '0.9') WHERE key = 'plan'")
    db.close()
    for use in (open_run, RunFile.open_to_write, lambda p: certify(p, steps, **PLANS["labels"])):
        with pytest.raises(RunError, match="a damaged plan"):
            use(path)
    assert version(path) == 2


FLAT = json.loads("""{
  "method": "pairwise", "alpha": 0.001, "n0": 100, "n": 1000, "sigma": 0.25, "noise": "gaussian", "seed": 3,
  "num_classes": 10, "model": "abc", "engine": "torch+folded (torch 2.13.0+cpu) on cpu", "batch": 100, "data": "def",
  "preprocessing": "none", "skip": 2, "limit": 7, "total": 7, "radii": [], "width": null, "futility": null,
  "levels": null, "noise_error": 0.0, "shard": null, "votes": "hard", "temperature": 1.0, "lipschitz": null,
  "constant": null}""")
NOUNS = Plan(
    Classifier(sigma=0.25, num_classes=10, votes=Labels(), model="abc"),
    Question(draws=FixedN(1000, "pairwise")),
    Setting(engine=Identity("torch+folded", "torch 2.13.0+cpu", "cpu", "float32"), batch=100, seed=3, stream=1),
    Selection(skip=2, limit=7, data="def", preprocessing="none", total=7),
)


def with_noun(noun, plan=NOUNS, **changes):
    return replace(plan, **{noun: replace(getattr(plan, noun), **changes)})


def with_shares(kind, **question):
    plan = with_noun("classifier", votes=kind)
    return with_noun("question", plan, draws=FixedN(1000, "betting"), **question)


@pytest.mark.parametrize(
    ("changes", "plan"),
    [
        ({}, NOUNS),
        (
            {"noise": "grid", "levels": 16, "noise_error": 1e-9},
            replace(with_noun("classifier", noise="grid", levels=16), noise_error=1e-9),
        ),
        (
            {"method": "adaptive", "radii": [0.25, 0.5], "futility": 0.1},
            with_noun("question", draws=UntilRadii(radii=(0.25, 0.5), max_n=1000, futility=0.1)),
        ),
        (
            {"method": "adaptive", "width": 0.2, "futility": 0.0},
            with_noun("question", draws=UntilWidth(width=0.2, max_n=1000, futility=0.0)),
        ),
        ({"votes": "softmax", "method": "betting", "temperature": 0.5}, with_shares(Softmax(0.5))),
        ({"votes": "hardmax", "method": "betting"}, with_shares(Hardmax())),
        (
            {"votes": "sparsemax", "method": "betting", "lipschitz": "given", "constant": 1.5},
            replace(with_shares(Sparsemax(), lipschitz=1.5), constant=1.5),
        ),
        (
            {"votes": "softmax", "method": "betting", "lipschitz": "product", "constant": 1.5},
            replace(with_shares(Softmax(), lipschitz="product"), constant=1.5),
        ),
        (
            {"votes": "softmax", "method": "betting", "lipschitz": "local"},
            with_shares(Softmax(), lipschitz="local"),
        ),
        ({"shard": [2, 3], "limit": None}, with_noun("selection", shard=(2, 3), limit=None)),
        (
            {"engine": "callable on numpy 2.4.6"},
            with_noun("setting", engine=Identity("callable", "numpy 2.4.6", "cpu")),
        ),
        (
            {"engine": "onnx (onnxruntime 1.23.2) on cpu"},
            with_noun("setting", engine=Identity("onnx", "onnxruntime 1.23.2", "cpu")),
        ),
        (
            {"engine": "onnx (onnxruntime 1.23.2, torch 2.13.0) on cpu"},
            with_noun("setting", engine=Identity("onnx", "onnxruntime 1.23.2, torch 2.13.0", "cpu", "float32")),
        ),
        (
            {"engine": "compile+bf16 (torch 2.13.0 (source)) on cuda"},
            with_noun("setting", engine=Identity("compile+bf16", "torch 2.13.0 (source)", "cuda", "bf16")),
        ),
        (
            {"engine": "torch (torch 2.13.0) on cuda"},
            with_noun("setting", engine=Identity("torch", "torch 2.13.0", "cuda", "float32 with tf32 convolutions")),
        ),
        ({"engine": "", "batch": 0}, with_noun("setting", engine="auto", batch="auto")),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_every_flat_plan_is_one_of_the_four_nouns(changes, plan):
    assert plan_from_json(json.dumps({**FLAT, **changes}), 2) == plan


def test_a_flat_plan_of_the_first_version():
    """Format 1 began without grids, shards and soft votes."""
    later = ("levels", "noise_error", "shard", "votes", "temperature", "lipschitz", "constant")
    values = {name: value for name, value in FLAT.items() if name not in later}
    assert plan_from_json(json.dumps(values), 1) == NOUNS
    assert NOUNS.classifier.votes == Labels()


def test_a_run_of_format_3_that_names_no_version_of_its_noise_has_the_first(tmp_path):
    run = certify(tmp_path / "run.smoothcert")
    with RunFile.open_to_read(run.path) as file:
        values = json.loads(file._meta["plan"])
    assert values["setting"].pop("stream") == 2
    assert plan_from_json(json.dumps(values), 3).setting.stream == 1


def test_noise_of_a_later_version_is_refused():
    with pytest.raises(InputError, match="stream version 3 is not known here: use a newer smoothcert"):
        Setting(stream=3)
