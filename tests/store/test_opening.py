"""Nothing that lies beside a run file, or takes its place, harms a reader's files or a writer's votes."""

import ctypes
import fcntl
import logging
import multiprocessing
import os
import shutil
import signal
import sqlite3
import struct
import sys
import time
from contextlib import closing, contextmanager, suppress
from itertools import count

import pytest

import children
import heard
from interruptible import certify, classify, votes
from smoothcert import InputError, RunError, open_run
from smoothcert.report.sheets import sheets_of
from smoothcert.store import doctor, holding, shards
from smoothcert.store import file as run_file
from smoothcert.store.doctor import diagnose
from smoothcert.store.file import RunFile
from smoothcert.store.new_run import new_run
from smoothcert.store.opening import LOG_BEGINS, _log_checksum
from smoothcert.store.run import Run
from smoothcert.store.schema import WRITING
from smoothcert.store.shards import merge_runs


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and not p.is_symlink()}


@pytest.fixture
def run(tmp_path):
    certify(tmp_path / "run.smoothcert", n=100)
    return tmp_path / "run.smoothcert"


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run killed in the middle, with its log."""
    path = tmp_path_factory.mktemp("killed") / "run.smoothcert"
    with writing(path):
        pass
    return path


@pytest.fixture
def stopped(killed, tmp_path):
    """A copy of it."""
    shutil.copytree(killed.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / killed.name


@contextmanager
def writing(path):
    """While another process has drawn half a run, and waits; it is killed in the end."""
    ours, theirs = multiprocessing.Pipe()
    process = children.start(certify_half, path, theirs)
    assert ours.poll(120)
    ours.recv()
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.join()


def certify_half(path, pipe):
    run_file.COMMIT_SECONDS = 0.0
    certify(path, at_call(200, lambda: (pipe.send("half"), time.sleep(600))))


def at_call(number, act):
    """The model; at one of its calls something else is done as well, where nobody can see it in the model."""
    calls = count()
    heard.call = lambda batch: act() if next(calls) == number else None
    return classify


@pytest.fixture(autouse=True)
def nothing_heard_afterwards(monkeypatch):
    monkeypatch.setattr(heard, "call", heard.call)


def journal_naming(victim, database):
    """A journal that SQLite takes for hot, and whose end names a file that belongs to it."""
    magic = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
    pages = len(database) // 4096
    header = magic + struct.pack(">IIIII", 0, 7, pages, 512, 4096)
    name = os.fsencode(victim)
    lock_page = (1 << 30) // 4096 + 1
    tail = struct.pack(">I", lock_page) + name + struct.pack(">II", len(name), sum(name) % (1 << 32)) + magic
    return header.ljust(512, b"\0") + tail


READERS = (open_run, diagnose, RunFile.plan_of, lambda path: RunFile.open_to_write(path).close())


@pytest.mark.parametrize("read", READERS, ids=["show", "doctor", "plan", "certify"])
def test_a_journal_that_names_another_file_deletes_nothing(run, tmp_path, read):
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    run.with_name(run.name + "-journal").write_bytes(journal_naming(victim, run.read_bytes()))
    before = contents(tmp_path)
    with pytest.raises(InputError, match="-journal is not smoothcert's"):
        read(run)
    assert contents(tmp_path) == before


def test_the_forged_journal_would_delete_it(run, tmp_path):
    """So that the test above is one."""
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    run.with_name(run.name + "-journal").write_bytes(journal_naming(victim, run.read_bytes()))
    with sqlite3.connect(run) as db:
        db.execute("SELECT * FROM meta").fetchall()
    db.close()
    assert not victim.exists()


def test_a_journal_that_is_planted_while_a_run_is_written_deletes_nothing(tmp_path, uninterrupted):
    """At the end the file is closed, and the votes are in it."""
    path, victim = tmp_path / "run.smoothcert", tmp_path / "victim.txt"
    journal = path.with_name(path.name + "-journal")
    victim.write_text("precious")
    with pytest.raises(InputError, match="-journal is not smoothcert's"):
        certify(path, at_call(200, lambda: journal.write_bytes(journal_naming(victim, path.read_bytes()))))
    assert victim.read_text() == "precious"
    assert {p.name for p in tmp_path.iterdir()} == {path.name, victim.name, journal.name}
    journal.unlink()
    assert votes(open_run(path)) == uninterrupted


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="locks of open files are Linux's")
def test_a_journal_that_is_planted_while_a_run_is_opened_deletes_nothing(run, tmp_path, monkeypatch):
    """Between the look at what lies beside it and SQLite's first read."""
    victim, journal = tmp_path / "victim.txt", run.with_name(run.name + "-journal")
    victim.write_text("precious")
    known, connect = votes(open_run(run)), sqlite3.connect

    def plant(*given, **options):
        journal.write_bytes(journal_naming(victim, run.read_bytes()))
        return connect(*given, **options)

    monkeypatch.setattr(sqlite3, "connect", plant)
    with RunFile.open_to_write(run) as file:
        file.reject("a change")
        file.reject(None)
    monkeypatch.undo()
    assert victim.read_text() == "precious"
    journal.unlink()
    assert votes(open_run(run)) == known


def test_a_run_that_ends_is_a_plain_file_that_sqlite_finds_sound(run):
    """Though its first bytes are not written by SQLite alone."""
    header = run.read_bytes()[:100]
    assert header[18:20] == b"\1\1"
    assert header[24:28] == header[92:96]
    with closing(sqlite3.connect(run)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert {p.name for p in run.parent.iterdir()} == {run.name}


def test_one_who_reads_is_waited_for_and_not_disturbed(run, monkeypatch):
    """SQLite reads a file without a log under a lock; the log begins when nobody reads."""
    monkeypatch.setattr(holding, "READERS_SECONDS", 0.1)
    with RunFile.open_to_read(run) as reader:
        with pytest.raises(RunError, match="others read"):
            RunFile.open_to_write(run)
        assert len(reader.inputs()) == 12
    assert len(certify(run, n=100)) == 12


@pytest.mark.parametrize("content", ["notes", "a database"])
def test_what_is_no_run_is_not_changed(tmp_path, content):
    path = tmp_path / "out.smoothcert"
    if content == "notes":
        path.write_text("notes " * 100)
    else:
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE mine (x)")
        db.close()
    before = contents(tmp_path)
    with pytest.raises(InputError, match="not a smoothcert run file"):
        RunFile.open_to_write(path)
    assert contents(tmp_path) == before


def log_of(page_size):
    """The begin of a log with pages of that size, and a checksum that fits."""
    header = struct.pack(">6I", LOG_BEGINS[0][0], LOG_BEGINS[1], page_size, 0, 1, 2)
    return header + struct.pack(">II", *_log_checksum(header, 0)) + bytes(9_000)


@pytest.mark.parametrize(
    "content",
    [b"garbage " * 1_200, bytes(9_000), *map(log_of, (0, 3, 1 << 31))],
    ids=["garbage", "zeros", "no pages", "odd pages", "huge pages"],
)
def test_what_is_no_log_is_not_waited_for(run, content, caplog):
    log, known = run.with_name(run.name + "-wal"), votes(open_run(run))
    log.write_bytes(content)
    assert votes(open_run(run)) == known
    assert "is no log of SQLite's" in caplog.text
    assert log.read_bytes() == content


def test_no_journal_is_ever_made(tmp_path):
    """The kernel tells of every file that comes into being: the run, its log and the index of that, no more."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "inotify_init1"):
        pytest.skip("Linux tells of new files by inotify")
    watch = library.inotify_init1(os.O_NONBLOCK)
    assert library.inotify_add_watch(watch, os.fsencode(tmp_path), 0x100) > 0
    for _ in range(2):
        certify(tmp_path / "run.smoothcert", n=100)
    told = os.read(watch, 1 << 16)
    os.close(watch)
    assert b"run.smoothcert-wal" in told
    assert b"-journal" not in told


def test_a_killed_run_is_read_without_a_change(stopped, tmp_path):
    before = contents(tmp_path)
    assert 0 < len(open_run(stopped)) < 12
    assert diagnose(stopped).healthy
    assert contents(tmp_path) == before


@pytest.mark.parametrize("index", [b"", bytes(32768), b"\xff" * 32768, b"x"])
def test_an_index_that_nobody_holds_is_not_believed(stopped, index):
    known = len(open_run(stopped))
    stopped.with_name(stopped.name + "-shm").write_bytes(index)
    assert len(open_run(stopped)) == known
    assert stopped.with_name(stopped.name + "-shm").read_bytes() == index


@pytest.mark.parametrize("size", [0, 16, 32, 33, 100])
def test_a_writer_killed_at_the_first_bytes_of_its_log(run, tmp_path, size):
    """Up to its first page a log holds nothing; SQLite waits ten seconds for that page after exactly a header."""
    copy = tmp_path / "copy.smoothcert"
    with RunFile.open_to_write(run) as file:
        file.reject("a change, so that there is a log")
        shutil.copy(run, copy)
        copy.with_name(copy.name + "-wal").write_bytes(run.with_name(run.name + "-wal").read_bytes()[:size])
    assert len(open_run(copy)) == len(open_run(run))


def test_a_log_without_its_index(stopped, tmp_path, uninterrupted):
    known, before = len(open_run(stopped)), contents(tmp_path)
    stopped.with_name(stopped.name + "-shm").unlink()
    assert len(open_run(stopped)) == known
    del before[stopped.name + "-shm"]
    assert before.items() <= contents(tmp_path).items()
    assert votes(certify(stopped)) == uninterrupted


def linked(path, victim):
    path.symlink_to(victim)


def hard_linked(path, victim):
    path.hardlink_to(victim)


def piped(path, victim):
    os.mkfifo(path)


def foldered(path, victim):
    path.mkdir()


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("plant", [linked, hard_linked, piped, foldered])
def test_what_is_planted_beside_a_run(run, tmp_path, ending, plant):
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    plant(run.with_name(run.name + ending), victim)
    before = contents(tmp_path)
    for read in READERS:
        with pytest.raises(InputError, match="move it away"):
            read(run)
    assert contents(tmp_path) == before
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("plant", [piped, foldered])
def test_what_is_no_file(tmp_path, plant):
    plant(tmp_path / "run.smoothcert", None)
    with pytest.raises(InputError, match="there is no run file"):
        open_run(tmp_path / "run.smoothcert")
    with pytest.raises(InputError, match="no plain file"):
        certify(tmp_path / "run.smoothcert")


def test_links_to_a_run(run, tmp_path):
    """One is read, and gone on with, under its own name; none makes a file."""
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "run.smoothcert").symlink_to(run)
    (folder / "none.smoothcert").symlink_to(tmp_path / "victim")
    assert votes(open_run(folder / "run.smoothcert")) == votes(certify(folder / "run.smoothcert", n=100))
    with pytest.raises(InputError, match="a link and leads to no run"):
        certify(folder / "none.smoothcert")
    (folder / "empty.smoothcert").symlink_to(tmp_path / "empty")
    (tmp_path / "empty").touch()
    with pytest.raises(InputError, match="a link and leads to no run"):
        certify(folder / "empty.smoothcert")
    assert (tmp_path / "empty").read_bytes() == b""
    (tmp_path / "empty").unlink()
    (folder / "empty.smoothcert").unlink()
    assert {p.name for p in tmp_path.iterdir()} == {"links", run.name}
    assert {p.name for p in folder.iterdir()} == {"run.smoothcert", "none.smoothcert"}


def test_an_empty_file_does_not_cost_its_log(stopped):
    log = stopped.with_name(stopped.name + "-wal")
    before = log.read_bytes()
    stopped.write_bytes(b"")
    for read in (open_run, certify):
        with pytest.raises(InputError, match=r"holds no run yet|votes of a run that is not there"):
            read(stopped)
    stopped.unlink()
    with pytest.raises(InputError, match="votes of a run that is not there"):
        certify(stopped)
    assert log.read_bytes() == before
    assert not stopped.exists()


def test_a_killed_run_that_was_moved_without_its_log(stopped, tmp_path, uninterrupted, caplog):
    moved, log = tmp_path / "moved.smoothcert", stopped.with_name(stopped.name + "-wal")
    known = len(open_run(stopped))
    stopped.rename(moved)
    with caplog.at_level(logging.WARNING):
        assert len(open_run(moved)) < known
    assert "parted from its log" in caplog.text
    before = moved.read_bytes(), log.read_bytes()
    with pytest.raises(RunError, match="parted from its log"):
        certify(moved)
    assert (moved.read_bytes(), log.read_bytes()) == before
    log.rename(tmp_path / "moved.smoothcert-wal")
    assert len(open_run(moved)) == known
    assert votes(certify(moved)) == uninterrupted


def test_a_writer_killed_between_the_log_and_the_last_change(run, uninterrupted, caplog):
    """It has put the log into the file and deleted it, and not yet said so: that is no lost log."""
    with sqlite3.connect(run) as db:
        db.execute("PRAGMA journal_mode = WAL")
    db.close()
    assert len(open_run(run)) == 12
    assert not caplog.text
    assert {p.name for p in run.parent.iterdir()} == {run.name}
    assert len(certify(run, n=100)) == 12


def test_a_second_writer_under_another_name(tmp_path):
    path, other = tmp_path / "run.smoothcert", tmp_path / "other.smoothcert"
    with writing(path):
        other.hardlink_to(path)
        before = contents(tmp_path)
        for name in (path, other):
            with pytest.raises(RunError, match="another process is writing"):
                certify(name)
        assert contents(tmp_path) == before
    with pytest.raises(RunError, match="parted from its log"):
        certify(other)
    assert 0 < len(open_run(path)) < 12


def test_a_second_writer_of_this_process_under_another_name(tmp_path, uninterrupted):
    path, other = tmp_path / "run.smoothcert", tmp_path / "other.smoothcert"

    def certify_again():
        other.hardlink_to(path)
        with pytest.raises(RunError, match="another process is writing"):
            certify(other)

    assert votes(certify(path, at_call(50, certify_again))) == uninterrupted


@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "removed"])
def test_a_run_that_is_replaced_while_it_is_written(tmp_path, uninterrupted, monkeypatch, replaced):
    monkeypatch.setattr(run_file, "COMMIT_SECONDS", 0.0)
    path, other = tmp_path / "run.smoothcert", tmp_path / "other.smoothcert"
    certify(other, n=100)
    theirs = other.read_bytes()
    with pytest.raises(
        RunError, match="was replaced or removed while it was written: all that was drawn is in"
    ) as told:
        certify(path, at_call(200, lambda: other.replace(path) if replaced else path.unlink()))
    left = {p.name for p in tmp_path.iterdir()} - {other.name}
    if replaced:
        assert path.read_bytes() == theirs
    (saved,) = left - {path.name}
    assert saved in str(told.value)
    assert len(open_run(tmp_path / saved)) >= 5
    assert votes(certify(tmp_path / saved)) == uninterrupted


def test_a_run_that_is_moved_while_it_is_written(tmp_path, uninterrupted, monkeypatch):
    monkeypatch.setattr(run_file, "COMMIT_SECONDS", 0.0)
    path, moved = tmp_path / "run.smoothcert", tmp_path / "moved.smoothcert"
    with pytest.raises(RunError, match="was moved while it was written"):
        certify(path, at_call(200, lambda: path.rename(moved)))
    assert {p.name for p in tmp_path.iterdir()} == {moved.name}
    assert len(open_run(moved)) >= 5
    assert votes(certify(moved)) == uninterrupted


def moved_there(other, path):
    other.replace(path)


def copied_over_it(other, path):
    """It keeps its inode."""
    shutil.copyfile(other, path)


def removed_and_made_again(other, path):
    path.unlink()
    shutil.copyfile(other, path)


SWAPS = (moved_there, copied_over_it, removed_and_made_again)
LATER = (len, lambda run: run.clean, lambda run: run.certificates(), sheets_of)
"""What opens the file again."""


@pytest.mark.parametrize("swap", SWAPS)
def test_votes_of_another_file_are_not_read_under_the_plan_of_the_first(run, tmp_path, swap):
    """Its σ is a third: radii would be three times too large."""
    certify(tmp_path / "other", n=100, sigma=0.1)
    for number, read in enumerate(LATER):
        path, other = tmp_path / f"run-{number}", tmp_path / f"other-{number}"
        shutil.copyfile(run, path)
        shutil.copyfile(tmp_path / "other", other)
        opened = open_run(path)
        swap(other, path)
        with pytest.raises(RunError, match=r"run-\d was replaced while it was read: open it again"):
            read(opened)
        assert open_run(path).plan.classifier.sigma == 0.1


def test_another_file_of_the_same_plan_is_another_file(run, tmp_path):
    opened = open_run(run)
    assert len(opened) == 12
    shutil.copyfile(run, tmp_path / "copy")
    (tmp_path / "copy").replace(run)
    with pytest.raises(RunError, match="was replaced while it was read"):
        repr(opened.clean)
    assert len(open_run(run).certificates()) == 12


def test_a_run_that_is_certified_again_is_opened_again(run):
    before = open_run(run)
    run.unlink()
    again = certify(run, n=100, sigma=0.1)
    with pytest.raises(RunError, match="was replaced while it was read"):
        before.certificates()
    assert len(again.certificates()) == 12


def test_shards_that_are_replaced_while_they_are_merged(tmp_path, monkeypatch):
    paths = [tmp_path / f"{i}-of-2" for i in (1, 2)]
    for i, path in enumerate(paths, start=1):
        certify(path, n=100, shard=(i, 2))
    certify(tmp_path / "other", n=100, sigma=0.1, shard=(2, 2))
    monkeypatch.setattr(shards, "new_run", lambda *given: (tmp_path / "other").replace(paths[1]) and new_run(*given))
    with pytest.raises(RunError, match="2-of-2 was replaced while it was read"):
        merge_runs(paths, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("read", [open_run, diagnose], ids=["show", "doctor"])
def test_a_run_that_is_replaced_while_it_is_opened(run, tmp_path, monkeypatch, read):
    """Between the look at the file and SQLite's."""
    shutil.copyfile(run, tmp_path / "other")
    connect = sqlite3.connect

    def swapped(name, **options):
        if str(name).startswith("file:"):
            (tmp_path / "other").replace(run)
        return connect(name, **options)

    monkeypatch.setattr(sqlite3, "connect", swapped)
    if read is diagnose:
        assert "was replaced while it was read" in diagnose(run).faults[0]
    else:
        with pytest.raises(RunError, match="was replaced while it was read"):
            read(run)


def test_a_diagnosis_is_of_one_file(run, tmp_path, monkeypatch):
    certify(tmp_path / "other", n=100, sigma=0.1)

    def swapped(path):
        (tmp_path / "other").replace(path)
        return Run(path)

    monkeypatch.setattr(doctor, "Run", swapped)
    assert diagnose(run).faults == (f"{run} was replaced while it was read: open it again.",)


def test_a_run_that_is_being_written_is_read_again_and_again(tmp_path):
    """By what was opened at first, too."""
    path = tmp_path / "run.smoothcert"
    with writing(path):
        first = open_run(path)
        assert 0 < len(first) < 12
        assert votes(first) == votes(open_run(path))
    certify(path)
    assert len(first.clean) == len(first)
    assert len(open_run(path)) == 12


def test_a_call_that_writes_nothing_leaves_nothing(tmp_path):
    RunFile.open_to_write(tmp_path / "run.smoothcert").close()
    assert not list(tmp_path.iterdir())


def test_it_says_that_it_is_being_written(killed, run):
    """So that it can be told from one whose log is no longer needed."""
    assert killed.read_bytes()[68:72] == WRITING.to_bytes(4, "big")
    assert run.read_bytes()[68:72] == b"smce"


def deep(content, pages):
    """A run whose votes hang at the end of so long a chain of pages."""
    db = sqlite3.connect(":memory:")
    db.deserialize(content)
    (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'inputs'").fetchone()
    db.close()
    forged, count = bytearray(content), len(content) // 4096
    forged += forged[4096 * (root - 1) : 4096 * root]

    def link(child):
        return struct.pack(">BHHHBI", 5, 0, 0, 4096, 0, child).ljust(4096, b"\0")

    forged[4096 * (root - 1) : 4096 * root] = link(count + 2)
    forged += b"".join(link(number + 1) for number in range(count + 2, count + pages + 1)) + link(count + 1)
    forged[28:32] = struct.pack(">I", len(forged) // 4096)
    return bytes(forged)


@pytest.mark.slow
def test_a_tree_of_pages_deeper_than_the_stack(run):
    run.write_bytes(deep(run.read_bytes(), 100_000))
    process = children.start(read_all, run)
    process.join(300)
    assert process.exitcode == 0


def read_all(path):
    for read in READERS:
        with suppress(InputError, RunError):
            read(path)
    sys.exit(0)
