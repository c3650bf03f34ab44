"""Nothing that lies beside a run file, or takes its place, harms a reader's files or a writer's votes."""

import ctypes
import logging
import multiprocessing
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import time

import pytest

import interruptible
from interruptible import certify, classify, votes
from smoothcert import InputError, RunError, open_run
from smoothcert.store.doctor import diagnose
from smoothcert.store.file import RunFile
from smoothcert.store.opening import check_pages


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
    process = multiprocessing.get_context("forkserver").Process(target=certify_and_stay, args=(path,))
    process.start()
    while not path.with_name("stays").exists():
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    path.with_name("stays").unlink()
    return path


@pytest.fixture
def stopped(killed, tmp_path):
    """A copy of it."""
    shutil.copytree(killed.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / killed.name


def certify_and_stay(path):
    """Draws half a run, commits, and does not leave."""
    calls = iter(range(200))

    def model(batch):
        if next(calls, None) is None:
            path.with_name("stays").touch()
            time.sleep(600)
        return classify(batch)

    model.__module__, model.__qualname__ = classify.__module__, classify.__qualname__
    interruptible.certify.__globals__  # noqa: B018
    from smoothcert.store import file

    file.COMMIT_SECONDS = 0.0
    certify(path, model)


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
    with pytest.raises(InputError, match="run.smoothcert-journal is not smoothcert's"):
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
