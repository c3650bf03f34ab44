"""Runs that somebody has written with checksums that fit: what cannot be is refused, and no proof rests on them."""

import dataclasses
import json
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import torch

from smoothcert import Duels, InputError, Labels, RunError, SmoothedClassifier, Softmax, certify_counts, open_run
from smoothcert.certification import Care, certify_into
from smoothcert.data import as_dataset
from smoothcert.lipschitz_classifier import SETTING
from smoothcert.plan import Classifier, Plan, Question, Selection
from smoothcert.sampling.blocks import Claim
from smoothcert.sampling.duels import Lost
from smoothcert.sampling.engines import Engines
from smoothcert.store.doctor import diagnose
from smoothcert.store.file import RunFile
from smoothcert.store.schema import _checksum, meta_checksum, pack, pack_claim, pack_clean, pack_input
from smoothcert.summary import certified_radii

IMAGES = np.random.default_rng(0).random((6, 1, 4, 4)).astype(np.float32)


class Items:
    def __len__(self):
        return len(IMAGES)

    def __getitem__(self, row):
        return IMAGES[row], row % 3


def network():
    layer = torch.nn.Linear(16, 3, bias=False)
    torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(0))
    return torch.nn.Sequential(torch.nn.Flatten(), layer)


def certify(path, model=None):
    """Without noise: the radii rest on constants that the plan keeps."""
    dataset = as_dataset(Items())
    plan = Plan(Classifier.bare(3), Question.without_noise(), SETTING, Selection().of(dataset))
    return certify_into(path, Engines(model or network()), dataset, plan, 0, Care())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return certify(tmp_path_factory.mktemp("whole") / "run.smoothcert").path


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copy(whole, tmp_path / whole.name)


def forge(path, *statements, **changes):
    """Changes rows, and what the plan says, and seals it again."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement, values in statements:
            db.execute(statement, values)
        meta = dict(db.execute("SELECT key, value FROM meta WHERE key != 'checksum'"))
        plan = json.loads(meta["plan"])
        plan["classifier"] |= {name: changes.pop(name) for name in ("num_classes",) if name in changes}
        meta["plan"] = json.dumps({**plan, **changes})
        db.execute("UPDATE meta SET value = ? WHERE key = 'plan'", (meta["plan"],))
        db.execute("UPDATE meta SET value = ? WHERE key = 'checksum'", (meta_checksum(meta),))


UNCLAIMED = [(f"DELETE FROM {table} WHERE position > 2", ()) for table in ("claims", "clean")]


@pytest.mark.parametrize(
    "forged",
    [{"pairs": [[0.0] * 3] * 3}, {"pairs": [[1e-9] * 3]}, {"constant": 1e-9}],
    ids=["no steepness", "too little", "a small constant"],
)
def test_what_is_certified_now_rests_on_a_proof_of_now(run, forged):
    forge(run, *UNCLAIMED, **forged)
    with pytest.raises(RunError, match=r"Lipschitz constants below those|a damaged plan"):
        certify(run)
    assert len(open_run(run)) == 3


def test_a_proof_without_its_constant(run):
    forge(run, constant=None)
    with pytest.raises(RunError, match="a damaged plan"):
        open_run(run)
    assert not diagnose(run).healthy


@pytest.mark.parametrize("pairs", [[], [[1e9] * 3]], ids=["none", "large"])
def test_constants_that_are_larger_bound_as_well(run, pairs):
    known = [c.radius for c in open_run(run).certificates()]
    forge(run, *UNCLAIMED, pairs=pairs)
    radii = [c.radius for c in certify(run).certificates()]
    assert radii[:3] == known[:3]
    assert all(0 < radius <= proved for radius, proved in zip(radii[3:], known[3:], strict=True))


def test_a_run_goes_on_with_the_constants_it_has(run):
    known = [c.radius for c in open_run(run).certificates()]
    forge(run, *UNCLAIMED)
    assert [c.radius for c in certify(run).certificates()] == known


def test_the_error_of_the_noise_is_not_taken_from_a_file(tmp_path):
    smoothed = SmoothedClassifier(network(), sigma=0.25, num_classes=3, noise="grid", seed=0, engine="torch")
    path = smoothed.certify_dataset(GridItems(), out=tmp_path / "run.smoothcert", n=100).path
    forge(path, ("DELETE FROM votes WHERE position > 2", ()), noise_error=0.0)
    with pytest.raises(RunError, match="a damaged plan"):
        smoothed.certify_dataset(GridItems(), out=path, n=100)


@pytest.mark.parametrize("asked", ["local", 2.0], ids=["estimated", "given"])
def test_a_plan_that_contradicts_itself(tmp_path, asked):
    """An estimate beside a constant would be read as proved by it."""
    smoothed = SmoothedClassifier(network(), sigma=0.25, num_classes=3, votes=Softmax(1.0), seed=0, engine="torch")
    path = smoothed.certify_dataset(Items(), out=tmp_path / "run.smoothcert", n=100, lipschitz=asked).path
    assert len(open_run(path).certificates()) == 6
    for number, changes in enumerate(({"constant": 1e-3}, {"pairs": [[1e-3] * 3]})):
        forged = shutil.copy(path, tmp_path / f"{number}.smoothcert")
        forge(forged, **changes)
        with pytest.raises(RunError, match="a damaged plan"):
            open_run(forged)


class GridItems(Items):
    levels = 255

    def __getitem__(self, row):
        return np.round(IMAGES[row] * 255).astype(np.float32) / 255, row % 3


def test_constants_of_many_classes_take_no_square_of_them(run):
    """2²⁰ of them, squared, are 8 TB."""
    forge(run, num_classes=1 << 20, pairs=[[1] * (1 << 20)])
    assert len(open_run(run).certificates()) == 6


def claim(prediction=1, radius=0.5, n=0, position=0):
    values = (position, prediction, radius, n, 0.1)
    return ("REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?)", (*values, _checksum(values)))


@pytest.mark.parametrize(
    "forged",
    [
        claim(radius=1e308),
        claim(prediction=3),
        claim(prediction=1 << 62),
        claim(prediction=-2),
        claim(n=1),
        claim(prediction=-1),
        claim(prediction=1, radius=0.0),
        claim(prediction=2),
        ("DELETE FROM clean WHERE position = 0", ()),
    ],
    ids=[
        "a huge radius",
        "no class of the run",
        "a huge class",
        "a negative class",
        "draws that were not planned",
        "a radius of no class",
        "a class without a radius",
        "another class than the model's",
        "no class of the model",
    ],
)
def test_claims_that_cannot_be(run, tmp_path, forged):
    forge(run, forged)
    with pytest.raises(RunError, match=r"a damaged claim|a claim that cannot be"):
        open_run(run).certificates()
    assert not diagnose(run, tmp_path / "saved.smoothcert").healthy
    assert len(certify(tmp_path / "saved.smoothcert")) == 6


def adaptive(path, **changes):
    """A run whose input number 2 is claimed for class 2 at its first look: at radius 0.2, or with an interval."""
    votes = {"votes": changes.pop("votes")} if "votes" in changes else {}
    ends = {"max_n": 1000, **({"width": 0.1} if changes.pop("narrow", False) else {"radii": [0.1, 0.2]}), **changes}
    smoothed = SmoothedClassifier(network(), sigma=0.25, num_classes=3, seed=0, engine="torch", **votes)
    return smoothed.certify_dataset(Items(), out=path, **ends)


@pytest.mark.parametrize("radius", [0.05, 0.15, 0.3, 0.2 + 1e-16])
def test_a_claim_of_a_radius_that_was_not_asked_for(tmp_path, radius):
    run = adaptive(tmp_path / "run.smoothcert")
    path, claimed = run.path, run.certificates()[2]
    assert (claimed.prediction, claimed.radius) == (2, 0.2)
    for prediction, known in ((-1, 0.0), (2, 0.1), (2, 0.2)):
        forge(path, claim(prediction, known, claimed.n, 2))
        assert open_run(path).certificates()[2].radius == known
    forge(path, claim(2, radius, claimed.n, 2))
    with pytest.raises(RunError, match="a claim that cannot be"):
        open_run(path).certificates()


@pytest.mark.parametrize("votes", [Duels(), Labels()], ids=str)
@pytest.mark.parametrize("narrow", [False, True], ids=["radii", "width"])
def test_a_claim_that_its_votes_do_not_bear(tmp_path, votes, narrow):
    """Of another class than the selection's, of more than the votes prove, of some of the votes, of no votes."""
    asked = {"votes": votes, "narrow": narrow} if narrow else {"votes": votes, "radii": [0.1, 0.2, 0.6, 2.0, 1e30]}
    path = tmp_path / "run.smoothcert"
    claims = [(c.prediction, c.radius, c.n) for c in adaptive(path, futility=0, **asked).certificates()]
    position = next(i for i, (k, _, _) in enumerate(claims) if k >= 0)
    k, radius, n = claims[position]
    assert diagnose(path).healthy
    exact = [1.001 * radius] if votes == Duels() else []
    more = [*exact, 1.5 * radius, 1e32] if narrow else [0.6, 2.0, 1e30]
    for number, forged in enumerate([((k + 1) % 3, radius), *((k, r) for r in more)]):
        copy = shutil.copy(path, tmp_path / f"{number}.smoothcert")
        forge(copy, claim(*forged, n, position))
        with pytest.raises(RunError, match="a claim that its votes do not bear"):
            len(open_run(copy))
        assert not diagnose(copy, tmp_path / f"saved-{number}.smoothcert").healthy
        again = adaptive(tmp_path / f"saved-{number}.smoothcert", futility=0, **asked)
        assert [(c.prediction, c.radius, c.n) for c in again.certificates()] == claims
        with pytest.raises(RunError, match="a claim that its votes do not bear"):
            adaptive(copy, futility=0, **asked)
    none = ("DELETE FROM votes WHERE position = ? AND phase = 'estimation'", (position,))
    for number, statements in enumerate([(none,), (none, claim(k, radius, 0, position))]):
        copy = shutil.copy(path, tmp_path / f"none-{number}.smoothcert")
        forge(copy, *statements)
        with pytest.raises(RunError, match=r"a claim (without its votes|that its votes do not bear)"):
            len(open_run(copy))
        assert not diagnose(copy).healthy


def test_votes_that_end_between_looks(tmp_path):
    path = adaptive(tmp_path / "run.smoothcert", radii=[0.3], futility=0).path
    assert open_run(path).certificates()[2].n == 1000
    with RunFile.open_to_read(path) as file:
        last = [v for v in file.votes() if v.position == 2][-1]
    assert last.draws == 200
    drawn = dataclasses.replace(last, last=last.first + 1, draws=100)
    k = np.array([drawn.candidate])
    drawn = dataclasses.replace(drawn, classes=k, counts=np.array([100]), beside=Lost(k, k, np.array([100])))
    row = ("REPLACE INTO votes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", pack(drawn))
    forge(path, row, claim(-1, 0.0, 900, 2))
    with pytest.raises(RunError, match="a claim that its votes do not bear"):
        len(open_run(path))
    assert not diagnose(path).healthy


def test_a_claim_in_a_run_that_makes_none(tmp_path):
    smoothed = SmoothedClassifier(network(), sigma=0.25, num_classes=3, seed=0, engine="torch")
    path = smoothed.certify_dataset(Items(), out=tmp_path / "run.smoothcert", n=100).path
    forge(path, claim(1, 0.5, 100))
    with pytest.raises(RunError, match="a claim that cannot be"):
        len(open_run(path))
    assert not diagnose(path).healthy


@pytest.mark.parametrize("label", [-1, 3, 1 << 62])
def test_a_label_that_there_is_not(run, label):
    """An abstention would be right about -1."""
    with RunFile.open_to_read(run) as file:
        record = dataclasses.replace(file.inputs()[0], label=label)
    forge(run, ("REPLACE INTO inputs VALUES (?, ?, ?, ?, ?, ?)", pack_input(record, None)))
    with pytest.raises(RunError, match="a label that there is not for input number 0"):
        len(open_run(run))
    assert not diagnose(run).healthy


def test_an_abstention_is_right_about_nothing():
    certificate = certify_counts([50, 50], [500, 500], sigma=0.5)
    assert certificate.abstained
    assert certified_radii([certificate], [-1]).tolist() == [-1.0]


def test_a_class_without_noise_that_there_is_not(run):
    forge(run, ("REPLACE INTO clean VALUES (?, ?, ?)", pack_clean(0, 3)))
    with pytest.raises(RunError, match="a class without noise that there is not"):
        open_run(run).accuracies.clean  # noqa: B018
    assert not diagnose(run).healthy


def test_an_infinite_radius_is_kept_as_a_number():
    assert pack_claim(Claim(0, 1, float("inf"), 0))[2] == 1e32


def test_another_model_is_said_before_its_constants_are_compared(run):
    forge(run, *UNCLAIMED)
    double = network()
    with torch.no_grad():
        double[1].weight.mul_(2)
    with pytest.raises(InputError, match="another model"):
        certify(run, double)
