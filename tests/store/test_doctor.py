"""The doctor finds what is wrong, changes nothing, and saves what is intact for certify to go on with."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from interruptible import certify, votes
from smoothcert import InputError, RunError, open_run
from smoothcert.store.doctor import diagnose
from smoothcert.store.logs import import_logs

PLANS = {"fixed": {"n": 430}, "adaptive": {"radii": [0.1, 0.25], "max_n": 500}}
MOVED = "UPDATE votes SET counts = CAST(x'02000000' || substr(counts, 5) AS BLOB) WHERE position = 4"
"""Votes of the first class become votes of the last: their total is unchanged, only the checksum can tell."""


@pytest.fixture(scope="module", params=PLANS)
def plan(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("intact") / "run.smoothcert"
    certify(path, **PLANS[request.param])
    return path, PLANS[request.param]


def changed(plan, folder, *statements):
    path = folder / "run.smoothcert"
    shutil.copy(plan[0], path)
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()
    return path


def test_a_healthy_file(plan, tmp_path):
    found = diagnose(plan[0], tmp_path / "copy.smoothcert")
    assert found.healthy
    assert found.inputs == 12
    assert votes(open_run(tmp_path / "copy.smoothcert")) == votes(open_run(plan[0]))
    assert open_run(tmp_path / "copy.smoothcert").certificates() == open_run(plan[0]).certificates()


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE votes SET counts = x'0000000001000000' WHERE position = 4", "Input number 4 has damaged votes."),
        ("UPDATE votes SET draws = draws + 1 WHERE position = 4", "Input number 4 has damaged votes."),
        (MOVED, "Input number 4 has damaged votes."),
        ("UPDATE inputs SET label = 2 - label WHERE position = 3", "Input number 3 has a damaged record"),
        ("DELETE FROM inputs WHERE position = 5", "Input number 5 has votes and no record of what it is."),
    ],
)
def test_it_says_what_is_wrong_and_saves_the_rest(plan, tmp_path, statement, fault):
    path, saved = changed(plan, tmp_path, statement), tmp_path / "saved.smoothcert"
    before = path.read_bytes()
    with pytest.raises(RunError, match="`diagnose` copies what is intact"):
        open_run(path).certificates()
    found = diagnose(path, saved)
    assert any(fault in words for words in found.faults)
    assert path.read_bytes() == before
    assert diagnose(saved).healthy
    assert len(open_run(saved)) == 11
    assert votes(certify(saved, **plan[1])) == votes(open_run(plan[0]))


def test_a_claim_without_its_votes(tmp_path):
    path, saved = tmp_path / "run.smoothcert", tmp_path / "saved.smoothcert"
    before = votes(certify(path, **PLANS["adaptive"]))
    with sqlite3.connect(path) as db:
        position = db.execute("SELECT position FROM claims WHERE n > 100 LIMIT 1").fetchone()[0]
        db.execute("DELETE FROM votes WHERE position = ? AND phase = 'estimation' AND first = 0", (position,))
    db.close()
    for use in (lambda: open_run(path).certificates(), lambda: certify(path, **PLANS["adaptive"])):
        with pytest.raises(RunError, match=f"a claim without its votes for input number {position}"):
            use()
    assert f"Input number {position} has a claim without its votes." in diagnose(path, saved).faults
    assert votes(certify(saved, **PLANS["adaptive"])) == before


def test_a_changed_plan_is_reported(plan, tmp_path):
    path = changed(plan, tmp_path, """UPDATE meta SET value = replace(value, '"sigma": 0.3', '"sigma": 0.9')""")
    for use in (open_run, diagnose_or_raise, lambda p: certify(p, sigma=0.9, **plan[1])):
        with pytest.raises(RunError, match="a damaged plan"):
            use(path)


def diagnose_or_raise(path):
    found = diagnose(path)
    if not found.healthy:
        raise RunError(found.faults[0])


def test_a_lost_plan_is_not_declared_anew(plan, tmp_path):
    path = changed(plan, tmp_path, "DELETE FROM meta")
    with pytest.raises(RunError, match="votes but no plan"):
        certify(path, **plan[1])
    assert not diagnose(path, tmp_path / "saved.smoothcert").healthy
    assert not (tmp_path / "saved.smoothcert").exists()


def test_rows_that_contradict_each_other(plan, tmp_path):
    """Whole rows with right checksums, of which some blocks are counted twice."""
    path, again = changed(plan, tmp_path), tmp_path / "again.smoothcert"
    saved = tmp_path / "saved.smoothcert"
    certify(again, **{**plan[1], "n0": 100})
    with sqlite3.connect(path) as db:
        db.execute("ATTACH ? AS other", (str(again),))
        db.execute("DELETE FROM votes WHERE position = 2 AND phase = 'selection'")
        db.execute("INSERT INTO votes SELECT * FROM other.votes WHERE position = 2 AND phase = 'selection'")
    db.close()
    with pytest.raises(RunError, match=r"rows that contradict each other|a claim without its votes"):
        open_run(path).certificates()
    assert any("Input number 2 has votes that contradict others" in f for f in diagnose(path, saved).faults)
    assert votes(certify(saved, **plan[1])) == votes(open_run(plan[0]))


def test_rows_of_an_input_that_the_plan_does_not_know(tmp_path):
    path = tmp_path / "run.smoothcert"
    certify(path, n=430)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE votes SET position = 99 WHERE position = 4")
    db.close()
    assert not diagnose(path).healthy


def test_an_unfinished_run_is_healthy(tmp_path):
    path = tmp_path / "run.smoothcert"
    certify(path, n=430)
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM votes WHERE position > 6")
        db.execute("DELETE FROM inputs WHERE position > 6")
    db.close()
    found = diagnose(path)
    assert found.healthy
    assert found.inputs == 7


def test_format_1_and_an_imported_log(tmp_path):
    assert diagnose(Path(__file__).parent.parent / "data" / "format-1.smoothcert").healthy
    log = tmp_path / "sigma_0.5.tsv"
    log.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t0:00:01\n9\t2\t-1\t0.0\t0\t0:00:01\n")
    import_logs([log], tmp_path / "log.smoothcert")
    assert diagnose(tmp_path / "log.smoothcert", tmp_path / "copy.smoothcert").healthy
    assert [c.radius for c in open_run(tmp_path / "copy.smoothcert").certificates()] == [0.5, 0.0]


def test_it_overwrites_nothing(plan, tmp_path):
    (tmp_path / "saved").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        diagnose(plan[0], tmp_path / "saved")
    with pytest.raises(InputError, match="there is no run file"):
        diagnose(tmp_path / "none")
    with pytest.raises(InputError, match="is not a smoothcert run file"):
        diagnose(tmp_path / "saved")
    assert (tmp_path / "saved").read_text() == "mine"
