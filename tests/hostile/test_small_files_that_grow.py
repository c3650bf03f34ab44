"""Run files of a few kilobytes that stand for gigabytes, or for rows without end."""

import sqlite3
import struct
import subprocess
import sys
from itertools import pairwise, repeat
from pathlib import Path

import numpy as np
import pytest

from hostile.readers import SECONDS, read_run
from interruptible import certify
from smoothcert import open_run
from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.bounds.sequential import EXACT_GROWTH
from smoothcert.bounds.spending import looks
from smoothcert.plan import Classifier, Duels, FixedN, Labels, Margins, Plan, Question, Selection, Setting, UntilRadii
from smoothcert.sampling.blocks import Claim, Phase, Votes
from smoothcert.sampling.duels import Lost
from smoothcert.sampling.margins import POINTS, WEIGHT, Spread
from smoothcert.store.file import RunFile
from smoothcert.store.new_run import new_run
from smoothcert.store.opening import Ration
from smoothcert.store.schema import Info, InputRecord

PAGE = 4096


def many_counts(path, inputs, num_classes, monkeypatch):
    """A run with that many counts, nearly all of them zero."""
    classifier, question = Classifier(sigma=0.5, num_classes=num_classes), Question(draws=FixedN(200, "duels"))
    plan = Plan(classifier, question, Setting(), Selection(total=inputs))
    classes = np.array([0, num_classes - 1])
    last = num_classes - 1
    lost = {
        Phase.SELECTION: Lost(*np.array([[0, 0, last, last], [0, last, 0, last], [100, 9, 91, 100]])),
        Phase.ESTIMATION: Lost(*np.array([[0, 0], [0, last], [200, 9]])),
    }
    monkeypatch.setattr("smoothcert.store.file.check_size", lambda *_: None)
    with new_run(path, plan, Info("", "", "", "", None)) as file:
        for position in range(inputs):
            file.add_input(InputRecord(position, str(position), 0), None)
            file.write_votes(
                Votes(position, phase, 0, b, 100 * b, classes, np.array([100 * b - 9, 9]), 0.0, lost[phase])
                for phase, b in ((Phase.SELECTION, 1), (Phase.ESTIMATION, 2))
            )
    assert path.stat().st_size < 1 << 23
    return path.read_bytes()


def test_many_classes_are_refused_before_they_take_memory(patient, tmp_path, monkeypatch):
    content = many_counts(tmp_path / "run", 120, 1 << 20, monkeypatch)
    refusal = patient.survives(read_run, tmp_path / "box", content, "run.smoothcert")
    assert "120 inputs with 1048576 counts each, above 52428800 in all" in refusal


def test_a_run_that_could_not_be_read_is_refused_before_its_first_draw(tmp_path):
    plan = Plan(Classifier(sigma=0.5, num_classes=1 << 20), Question(), Setting(), Selection(total=120))
    with pytest.raises(ValueError, match="certify fewer inputs"), new_run(tmp_path / "run", plan, None):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")
def test_as_many_counts_as_may_be_take_less_than_a_gigabyte(tmp_path, monkeypatch):
    many_counts(tmp_path / "run", 50, 1 << 20, monkeypatch)
    assert peak(tmp_path / "run", 50) < 1 << 20


def adaptive(path, classifier, draws, rows, claim, inputs=1):
    """A run of equal inputs, each with these rows of votes and this claim."""
    plan = Plan(classifier, Question(n0=100, draws=draws).about(classifier), Setting(), Selection(total=inputs))
    with new_run(path, plan, Info("", "", "", "", None)) as file:
        for position in range(inputs):
            file.add_input(InputRecord(position, str(position), 0), None)
            file.add_claim(Claim(position, *claim))
        file.write_votes(Votes(position, *row) for position in range(inputs) for row in rows)
    assert path.stat().st_size < 1 << 22
    return path


def looked_at_often(path, votes, inputs):
    """A million classes, of which one gets all votes, at dozens of looks."""
    most, only = 2_000_000_000, np.array([0])
    ends = [0, *looks(most, EXACT_GROWTH)]
    rows = [
        (
            phase,
            a // 100,
            -(-b // 100),
            b - a,
            only,
            only + b - a,
            0.0,
            Lost(only, only, only + b - a) if votes == Duels() else None,
        )
        for phase, a, b in ((Phase.SELECTION, 0, 100), *((Phase.ESTIMATION, *ends) for ends in pairwise(ends)))
    ]
    classifier = Classifier(sigma=0.5, num_classes=1 << 20, votes=votes)
    return adaptive(path, classifier, UntilRadii(radii=(0.25,), max_n=most), rows, (0, 0.25, most), inputs)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")
@pytest.mark.parametrize("votes", [Labels(), Duels()], ids=["labels", "duels"])
def test_dozens_of_looks_at_a_million_classes_take_little_memory(tmp_path, votes):
    assert peak(looked_at_often(tmp_path / "run", votes, 1), 1) < 1 << 18


@pytest.mark.slow
@pytest.mark.parametrize("votes", [Labels(), Duels()], ids=["labels", "duels"])
def test_dozens_of_looks_at_a_million_classes_take_little_time(tmp_path, votes):
    run = looked_at_often(tmp_path / "run", votes, 50)
    said = subprocess.run([sys.executable, "-c", SPENT, run], capture_output=True, check=True, text=True).stdout
    assert all(float(seconds) < SECONDS for seconds in said.split())


@pytest.mark.slow
def test_a_thousand_radii_of_thousands_of_inputs_are_read_in_time(patient, tmp_path):
    radii, rows = tuple(np.linspace(0.001, 3, 1000).tolist()), [(Phase.SELECTION, 0, 1, 100, *SOME, 0.0)]
    run = adaptive(
        tmp_path / "run",
        Classifier(sigma=0.5, num_classes=10, votes=Labels()),
        UntilRadii(radii=radii),
        rows,
        (ABSTAIN, 0.0, 0),
        10_000,
    )
    assert patient.survives(read_run, tmp_path / "box", run.read_bytes(), "run.smoothcert") is None


SOME = np.arange(3), np.array([51, 40, 9])
PEAK = (
    "import pathlib, re, sys; from smoothcert import open_run;"
    "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text())[1]);"
    "before = peak(); assert len(open_run(sys.argv[1]).certificates()) == int(sys.argv[2]); print(peak() - before)"
)


SPENT = (
    "import sys, time; from smoothcert import open_run; from smoothcert.store.doctor import diagnose;"
    "began = time.process_time(); open_run(sys.argv[1]).certificates(); read = time.process_time();"
    "assert diagnose(sys.argv[1]).healthy; print(read - began, time.process_time() - read)"
)


def peak(path, inputs):
    """Kilobytes that reading a run takes."""
    command = [sys.executable, "-c", PEAK, path, str(inputs)]
    return int(subprocess.run(command, capture_output=True, check=True).stdout)


def spread(rivals, draws):
    """The margin votes of class 0: of so many rivals each gets a part of them at a point of its own."""
    rng, own = np.random.default_rng(rivals), np.arange(rivals)
    points, weights = rng.integers(POINTS // 2, POINTS, rivals), rng.integers(1, draws * WEIGHT // 3, rivals)
    points[0], weights[0] = POINTS // 2, draws * WEIGHT
    return Spread(np.zeros_like(own), own, points, weights)


@pytest.mark.slow
def test_many_rivals_of_margin_votes_are_read_in_time(patient, tmp_path):
    """As many as the file has room for, in one of many rows that are added up."""
    blocks = 2_000
    classifier = Classifier(sigma=0.5, num_classes=1 << 20, votes=Margins(1.0))
    question = Question(n0=100 * blocks, draws=FixedN(1000, "ramps"))
    plan, only = Plan(classifier, question, Setting(), Selection(total=1)), np.array([0])
    rows = [
        (Phase.SELECTION, 0, 1, spread(150_000, 100)),
        *((Phase.SELECTION, b, b + 1, spread(1, 100)) for b in range(1, blocks)),
        (Phase.ESTIMATION, 0, 10, spread(30_000, 1000)),
    ]
    with new_run(tmp_path / "run", plan, Info("", "", "", "", None)) as file:
        file.add_input(InputRecord(0, "0", 0), None)
        file.write_votes(
            Votes(0, phase, a, b, 100 * (b - a), only, np.array([100 * (b - a)]), 0.0, beside)
            for phase, a, b, beside in rows
        )
    content = (tmp_path / "run").read_bytes()
    assert len(content) < 1 << 22
    assert patient.survives(read_run, tmp_path / "box", content, "run.smoothcert") is None


@pytest.mark.slow
@pytest.mark.parametrize(("point", "draws"), [(8, 10_000), (16, 2_000_000_000)])
def test_rivals_who_are_nearly_alike_are_read_in_time(patient, tmp_path, point, draws):
    """Neither a look nor the next tells their bounds apart, nor which of two bounds is better for them."""
    classes, own = 150_000, np.arange(150_000)
    classifier = Classifier(sigma=0.5, num_classes=classes, votes=Margins(1.0))
    plan = Plan(classifier, Question(n0=100, draws=FixedN(draws, "ramps")), Setting(), Selection(total=1))
    weights = draws * WEIGHT // 4 + np.random.default_rng(0).integers(0, 100, classes)
    points, weights[0] = np.where(own == 0, POINTS // 2, point), draws * WEIGHT
    whole = Spread(own[:1], own[:1], np.array([POINTS // 2]), np.array([100 * WEIGHT]))
    besides = (Phase.SELECTION, 100, whole), (Phase.ESTIMATION, draws, Spread(0 * own, own, points, weights))
    with new_run(tmp_path / "run", plan, Info("", "", "", "", None)) as file:
        file.add_input(InputRecord(0, "0", 0), None)
        file.write_votes(
            Votes(0, phase, 0, n // 100, n, own[:1], np.array([n]), 0.0, beside) for phase, n, beside in besides
        )
    content = (tmp_path / "run").read_bytes()
    assert len(content) < 1 << 22
    assert patient.survives(read_run, tmp_path / "box", content, "run.smoothcert") is None


def of_labels(path, estimations):
    """A run of label votes of three classes."""
    n, most = int(estimations[0].sum()), np.arange(3)
    plan = Plan(
        Classifier(sigma=0.5, num_classes=3, votes=Labels()),
        Question(n0=100, draws=FixedN(n, "pairwise")),
        Setting(),
        Selection(total=len(estimations)),
    )
    with new_run(path, plan, Info("", "", "", "", None)) as file:
        for position, counts in enumerate(estimations):
            file.add_input(InputRecord(position, str(position), 0), None)
            votes = ((Phase.SELECTION, 100, np.array([100, 0, 0])), (Phase.ESTIMATION, n, counts))
            file.write_votes(
                Votes(position, phase, 0, -(-m // 100), m, most[k > 0], k[k > 0], 0.0) for phase, m, k in votes
            )
    return path.read_bytes()


@pytest.mark.slow
def test_bounds_that_take_hours_are_refused_in_time(patient, tmp_path):
    """As many pairs of the slowest kind as the file has room for."""
    shares = np.random.default_rng(0).dirichlet([3, 2, 1], 10_000)
    content = of_labels(tmp_path / "run", np.random.default_rng(1).multinomial(1_000_000, shares))
    assert len(content) < 1 << 22
    refusal = patient.survives(read_run, tmp_path / "box", content, "run.smoothcert")
    assert "bounds by pairwise of 10,000 inputs take about" in refusal


def test_equal_pairs_are_bounded_once(tmp_path):
    of_labels(tmp_path / "run", np.tile([900_000, 60_000, 40_000], (1_000, 1)))
    certificates = open_run(tmp_path / "run").certificates()
    assert len(certificates) == 1_000
    assert {c.radius for c in certificates} == {certificates[0].radius}


def tangled(content, table, fan, depth):
    """The file with a tree of so many levels above a table, in which every page hangs at its parent `fan` times."""
    db = sqlite3.connect(":memory:")
    db.deserialize(content)
    (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    db.close()
    forged = bytearray(content)
    pages = len(content) // PAGE
    leaf = forged[PAGE * (root - 1) : PAGE * root]

    def branch(child):
        cells, start = struct.pack(">IB", child, 1) * fan, PAGE - 5 * fan
        pointers = struct.pack(f">{fan}H", *range(start, PAGE, 5))
        head = struct.pack(">BHHHBI", 5, 0, fan, start, 0, child) + pointers
        return head.ljust(start, b"\0") + cells

    forged[PAGE * (root - 1) : PAGE * root] = branch(pages + 1)
    for level in range(1, depth):
        forged += branch(pages + level + 1)
    forged += leaf
    forged[28:32] = struct.pack(">I", len(forged) // PAGE)
    return bytes(forged)


@pytest.mark.parametrize("table", ["inputs", "claims", "constants"])
def test_pages_that_meet_again_have_an_end(patient, tmp_path, table):
    """12 pages of a tree stand for 300¹² rows."""
    certify(tmp_path / "run", n=100)
    content = tangled((tmp_path / "run").read_bytes(), table, 300, 12)
    assert patient.survives(read_run, tmp_path / "box", content, "run.smoothcert") is not None


def test_a_ration_ends():
    with pytest.raises(sqlite3.DatabaseError, match="rows without end"):
        list(Ration(10_000)(repeat((1, b"blob"))))


def test_a_large_value_in_a_small_file(patient, tmp_path):
    """What no file of its size can hold is not even looked at."""
    certify(tmp_path / "run", n=100)
    with RunFile.open_to_read(tmp_path / "run") as file, pytest.raises(sqlite3.DataError, match="too big"):
        file._db.execute("SELECT zeroblob(60000000)").fetchone()
