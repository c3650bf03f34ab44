"""Reading a whole run at once adds up to reading it row by row, and refuses what that refuses."""

import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from interruptible import certify
from smoothcert import InputError, Labels, Margins, RunError, open_run
from smoothcert.sampling.blocks import Soft
from smoothcert.sampling.duels import Lost
from smoothcert.sampling.margins import POINTS, WEIGHT, Spread
from smoothcert.store import counts
from smoothcert.store.file import RunFile
from smoothcert.store.schema import pack

ADAPTIVE = {"radii": [0.1, 0.2], "max_n": 1000}


@pytest.fixture(params=[{}, ADAPTIVE], ids=["fixed", "adaptive"])
def path(request, tmp_path):
    certify(tmp_path / "run.smoothcert", **request.param)
    return tmp_path / "run.smoothcert"


def at_once(path):
    with RunFile.open_to_read(path) as file:
        positions = np.array([record.position for record in file.inputs()])
        return counts.read_counts(file._vote_rows(), file.plan, positions, positions)


def row_by_row(path):
    with RunFile.open_to_read(path) as file:
        total = np.zeros((2, len(file.inputs()), file.plan.classifier.num_classes), dtype=np.int64)
        seconds = np.zeros(len(file.inputs()))
        for v in file.votes():
            total[int(v.phase.value == "estimation"), v.position, v.classes] += v.counts
            seconds[v.position] += v.seconds
        return total, seconds


@pytest.mark.parametrize("chunk", [1, 7, 20_000])
def test_both_ways_of_reading_agree(path, chunk, monkeypatch):
    monkeypatch.setattr(counts, "CHUNK", chunk)
    quick, slow = at_once(path), row_by_row(path)
    np.testing.assert_array_equal([quick.selections, quick.estimations], slow[0])
    np.testing.assert_allclose(quick.seconds, slow[1])
    with RunFile.open_to_read(path) as file:
        again = np.array([record.position for record in file.inputs()])
        votes = list(file.votes())
        kind, c = file.plan.classifier.votes, file.plan.classifier.num_classes
    others = kind.others(len(again), c)
    for v in votes:
        others.add(v.beside, v.draws, v.position, int(v.phase.value == "estimation"))
    for name in ("lost", "chosen", "named"):
        np.testing.assert_array_equal(getattr(quick.others, name), getattr(others, name))


def rewrite(path, change):
    """Changes one stored row of votes and writes it with a checksum that is right."""
    with RunFile.open_to_read(path) as file:
        votes = list(file.votes())
    old = votes[-1]
    row = pack(change(old))
    with sqlite3.connect(path) as database:
        database.execute(
            "DELETE FROM votes WHERE position = ? AND phase = ? AND first = ?", (old.position, old.phase, old.first)
        )
        database.execute("INSERT INTO votes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    database.close()


@pytest.mark.parametrize(
    "change",
    [
        {"position": 10**6},
        {"position": -1},
        {"draws": 10**6},
        {"counts": "one more"},
        {"classes": "too large"},
    ],
    ids=str,
)
def test_rows_that_contradict_the_plan(path, change):
    def spoil(votes):
        values = dict(change)
        if "counts" in values:
            values["counts"] = votes.counts + 1
        if "classes" in values:
            values["classes"] = votes.classes + 3
        return replace(votes, **values)

    rewrite(path, spoil)
    assert at_once(path) is None
    with pytest.raises(RunError):
        len(open_run(path))


def lost_of(votes, **changes):
    return replace(votes, beside=replace(votes.beside, **changes))


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda v: replace(v, beside=None), id="no duels"),
        pytest.param(lambda v: replace(v, beside=Soft(0, *np.ones((3, 3), dtype=int))), id="shares"),
        pytest.param(lambda v: lost_of(v, classes=v.beside.classes + 3, rivals=v.beside.rivals + 3), id="class"),
        pytest.param(lambda v: lost_of(v, rivals=v.beside.rivals + 3), id="rival"),
        pytest.param(lambda v: lost_of(v, counts=v.beside.counts + 1), id="more than were drawn"),
        pytest.param(lambda v: lost_of(v, counts=v.beside.counts * 0), id="none"),
        pytest.param(lambda v: lost_of(v, counts=v.beside.counts // 2 + 1), id="followed in some draws"),
        pytest.param(lambda v: replace(v, beside=Lost(*(np.tile(a, 2) for a in columns(v)))), id="pairs twice"),
        pytest.param(lambda v: replace(v, beside=Lost(*(a[::-1] for a in two_classes(v)))), id="pairs out of order"),
        pytest.param(lambda v: replace(v, beside=Lost(*two_classes(v))), id="two candidates"),
    ],
)
def test_duels_that_nobody_counted(path, spoil):
    rewrite(path, spoil)
    assert at_once(path) is None
    with pytest.raises(RunError, match=r"contradict|damaged"):
        len(open_run(path))


def columns(votes):
    return votes.beside.classes, votes.beside.rivals, votes.beside.counts


def two_classes(votes):
    return np.array([0, 1]), np.array([0, 1]), np.array([votes.draws, votes.draws])


def test_duels_of_a_class_that_was_not_selected(path):
    """Sound by themselves: the whole run shows that its selection chose another one."""

    def other(votes):
        k = (votes.candidate + 1) % 3
        return replace(votes, beside=Lost(np.array([k]), np.array([k]), np.array([votes.draws])))

    rewrite(path, other)
    assert at_once(path) is not None
    with pytest.raises(RunError, match="draws for a class that the selection did not choose"):
        len(open_run(path))


def test_a_damaged_row(path):
    with sqlite3.connect(path) as database:
        database.execute("UPDATE votes SET seconds = 1, draws = draws + 1 WHERE position = 3 AND phase = 'selection'")
    database.close()
    assert at_once(path) is None
    with pytest.raises(RunError, match="input number 3"):
        len(open_run(path))


def test_a_block_that_is_stored_twice(tmp_path):
    path = certify(tmp_path / "run.smoothcert").path
    with RunFile.open_to_read(path) as file:
        votes = [v for v in file.votes() if v.position == 2 and v.phase.value == "estimation"]
    longest = max(votes, key=lambda v: v.last - v.first)
    assert longest.last - longest.first > 1
    again = replace(longest, first=longest.first + 1, draws=longest.draws - 100)
    again = replace(again, classes=np.array([0]), counts=np.array([again.draws]))
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO votes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", pack(again))
    database.close()
    assert at_once(path) is None
    with pytest.raises(RunError, match="contradict"):
        len(open_run(path))


def margins_of(votes, **changes):
    return replace(votes, beside=replace(votes.beside, **changes))


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda v: replace(v, beside=None), id="none"),
        pytest.param(lambda v: replace(v, beside=Lost(*two_classes(v))), id="duels"),
        pytest.param(lambda v: margins_of(v, classes=v.beside.classes + 3), id="class"),
        pytest.param(lambda v: margins_of(v, rivals=v.beside.rivals + 3), id="rival"),
        pytest.param(lambda v: margins_of(v, points=v.beside.points + POINTS), id="point"),
        pytest.param(lambda v: margins_of(v, points=v.beside.points * 0), id="weights twice"),
        pytest.param(lambda v: margins_of(v, weights=v.beside.weights + 1), id="more than were drawn"),
        pytest.param(lambda v: margins_of(v, weights=v.beside.weights * 0), id="no weight"),
        pytest.param(lambda v: margins_of(v, weights=v.beside.weights - (1 << 62)), id="negative weight"),
        pytest.param(lambda v: margins_of(v, weights=v.beside.weights // 2 + 1), id="followed in some draws"),
        pytest.param(lambda v: replace(v, beside=Spread(*(a[::-1] for a in spread_columns(v)))), id="out of order"),
        pytest.param(lambda v: replace(v, beside=Spread(*(a[:0] for a in spread_columns(v)))), id="empty"),
        pytest.param(lambda v: replace(v, beside=followed_by(v, 0, 1)), id="two candidates"),
    ],
)
def test_margins_that_nobody_counted(tmp_path, spoil):
    path = tmp_path / "run.smoothcert"
    certify(path, votes=Margins(0.5), n=430)
    rewrite(path, spoil)
    with pytest.raises(RunError, match=r"contradict|damaged"):
        len(open_run(path))


def test_margins_of_a_class_that_was_not_selected(tmp_path):
    path = tmp_path / "run.smoothcert"
    certify(path, votes=Margins(0.5), n=430)
    rewrite(path, lambda v: replace(v, beside=followed_by(v, (v.candidate + 1) % 3)))
    with pytest.raises(RunError, match="draws for a class that the selection did not choose"):
        len(open_run(path))


def test_margins_in_a_run_of_duels(path):
    rewrite(path, lambda v: replace(v, beside=followed_by(v, v.candidate)))
    with pytest.raises(RunError, match=r"contradict|damaged"):
        len(open_run(path))


def spread_columns(votes):
    return votes.beside.classes, votes.beside.rivals, votes.beside.points, votes.beside.weights


def followed_by(votes, *classes):
    """Margin votes that are all whole, of these classes."""
    k = np.array(classes)
    return Spread(k, k, np.full_like(k, POINTS // 2), np.full_like(k, votes.draws * WEIGHT))


@pytest.fixture
def labels(tmp_path):
    """A run of label votes."""
    certify(tmp_path / "labels.smoothcert", votes=Labels(), n=100)
    return tmp_path / "labels.smoothcert"


def test_long_work_is_refused(labels):
    hasty, patient = open_run(labels, patience=0), open_run(labels, patience=float("inf"))
    refusal = (
        r"by pairwise of 12 inputs take about \d+ seconds? of a processor: allow them with a `patience` of \d+, or"
    )
    with pytest.raises(InputError, match=refusal):
        hasty.certificates()
    assert "by pairwise of 12 inputs take about" in hasty._repr_html_()
    assert len(hasty.certificates("union")) == 12
    assert patient.certificates() == open_run(labels).certificates()


@pytest.mark.parametrize("patience", [float("nan"), -1, "10", None, True])
def test_patience_is_a_number_of_seconds(labels, patience):
    with pytest.raises(InputError, match="patience must be a number"):
        open_run(labels, patience=patience)


def test_what_takes_long_beside_the_declared_method_is_left_out(labels, tmp_path, caplog):
    duels = certify(tmp_path / "duels.smoothcert", n=100)
    assert "pairwise" in duels.compared
    with caplog.at_level("INFO", logger="smoothcert"):
        assert set(duels.compared) - set(open_run(duels.path, patience=0).compared) == {"pairwise"}
    assert "left out: bounds by pairwise of 12 inputs" in caplog.text
    assert "pairwise" in open_run(labels, patience=0).compared
