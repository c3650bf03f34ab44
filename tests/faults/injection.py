"""Faults, and a small run that they happen to. Each fault returns how often it struck."""

import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import children
import heard
import interruptible
from smoothcert import InputError, RunError
from smoothcert.store import file as run_file
from smoothcert.store.file import RunFile

PLANS = {
    "fixed": {},
    "adaptive": {"radii": [0.1, 0.25], "max_n": 2000},
    "soft": {"votes": "softmax"},
}
KILLS = 8
FINISHED, INTERRUPTED, FAILED, REFUSED = 0, 130, 3, 4


def certify(path, plan):
    return interruptible.certify(path, **PLANS[plan])


RUNNERS = {"one process": certify}
"""Ways to draw a run in the child; resuming is always in one process."""


def facts(run):
    """All that a run says of its inputs."""
    tally = run.tally
    return (
        run.ids,
        run.labels.tolist(),
        tally.selections.tolist(),
        tally.estimations.tolist(),
        interruptible.others(run),
        [(c.prediction, c.radius, c.n) for c in run.certificates()],
    )


@dataclass
class Scene:
    """Where a fault happens. What has to be undone in the end is on `undo`."""

    path: Path
    plan: str
    runner: str
    chance: random.Random
    undo: ExitStack


class Child:
    """A process that certifies slowly, commits often, and says when it has begun to draw."""

    def __init__(self, scene, prepare=None):
        self.messages, theirs = multiprocessing.Pipe(duplex=False)
        often = scene.chance.choice((0.0, 0.03))
        self.process = children.start(_certify_slowly, scene.path, scene.plan, scene.runner, often, theirs, prepare)
        theirs.close()
        self.await_message()
        scene.undo.callback(self.kill)

    def await_message(self):
        with suppress(EOFError):
            assert self.messages.poll(600)
            self.messages.recv()

    def send(self, number):
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def kill(self):
        """Whether there was still something to kill."""
        alive = self.process.exitcode is None
        self.process.kill()
        self.process.join(600)
        return alive and self.process.exitcode == -signal.SIGKILL

    @property
    def code(self):
        """How it ended."""
        self.process.join(600)
        assert self.process.exitcode is not None, "the child hangs"
        return self.process.exitcode


def _certify_slowly(path, plan, runner, commit_seconds, messages, prepare):
    torch.set_num_threads(1)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run_file.COMMIT_SECONDS, listeners = commit_seconds, [messages]

    def linger(batch):
        if listeners and path.exists():  # it is there from when all has been read and checked
            listeners.pop().send("drawing")
        time.sleep(0.004)  # so that what is to happen meanwhile does

    heard.call = linger
    messages.send("begun")
    try:
        if prepare:
            prepare()
        RUNNERS[runner](path, plan)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except RunError:
        sys.exit(FAILED)
    except InputError:
        sys.exit(REFUSED)


# ---- processes


def killed(scene):
    """kill -9 at random moments, each time of the run that goes on from the last."""
    kills = 0
    while kills < KILLS:
        child = Child(scene)
        child.process.join(scene.chance.uniform(0.0, 0.4))
        if child.kill():
            kills += 1
        else:
            assert child.code == FINISHED
            scene.path.unlink()
    return kills


def stopped_and_continued(scene):
    child = Child(scene)
    stops = 0
    while child.process.exitcode is None and stops < 3:
        child.process.join(scene.chance.uniform(0.0, 0.2))
        child.send(signal.SIGSTOP)
        time.sleep(scene.chance.uniform(0.0, 0.2))
        child.send(signal.SIGCONT)
        stops += 1
    assert child.code == FINISHED
    return stops


def interrupted_twice(scene):
    child = Child(scene)
    child.await_message()
    child.process.join(scene.chance.uniform(0.0, 0.2))
    child.send(signal.SIGINT)
    time.sleep(scene.chance.uniform(0.0, 0.02))
    child.send(signal.SIGINT)
    assert child.code != FINISHED
    return 1


def two_writers(scene):
    """The second finds the first one stopped in the middle, is refused, and harms nothing."""
    first = Child(scene)
    first.await_message()
    first.send(signal.SIGSTOP)
    assert Child(scene).code == FAILED
    with pytest.raises(RunError, match="another process is writing"):
        RunFile.open_to_write(scene.path)
    first.send(signal.SIGCONT)
    assert first.code == FINISHED
    return 1


# ---- disks


def full_disk(scene):
    """A file system of a few pages."""
    folder = scene.path.parent / "disk"
    folder.mkdir()
    size = f"size={4 * scene.chance.randint(10, 20)}k"
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], capture_output=True, check=False)
    if mount.returncode:
        pytest.skip("mounting a small file system needs root: the limit on file sizes stands for it")
    scene.undo.callback(subprocess.run, ["umount", folder], check=True)
    scene.path = folder / scene.path.name
    assert Child(scene).code == FAILED
    subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)
    return 1


class FileSizeLimit:
    """No file may grow beyond so many bytes in this process."""

    def __init__(self, size):
        self.size = size

    def __call__(self):
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.size))


def file_size_limit(scene):
    assert Child(scene, FileSizeLimit(scene.chance.randint(1000, 60_000))).code == FAILED
    return 1


def give_up_root():
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


def unwritable_folder(scene):
    """First no file can be made, then one that was begun cannot be gone on with."""
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users
    scene.undo.callback(shutil.rmtree, folder)
    scene.path = folder / scene.path.name
    folder.chmod(0o555)
    assert Child(scene, give_up_root).code == REFUSED
    folder.chmod(0o755)
    begun(scene)
    before = {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.endswith("-shm")}
    folder.chmod(0o555)
    for p in folder.iterdir():
        p.chmod(0o444)
    assert Child(scene, give_up_root).code in (FAILED, REFUSED)
    folder.chmod(0o755)
    for p in folder.iterdir():
        p.chmod(0o644)
    assert {name: (folder / name).read_bytes() for name in before} == before
    return 2


# ---- bytes


def begun(scene):
    """Leaves a run that was killed in the middle, and its write-ahead log."""
    child = Child(scene)
    child.await_message()
    child.process.join(scene.chance.uniform(0.0, 0.2))
    child.kill()


def log_of(scene):
    begun(scene)
    log = scene.path.with_name(scene.path.name + "-wal")
    return log if log.exists() and log.stat().st_size else None


def truncated_log(scene):
    log = log_of(scene)
    if log:
        os.truncate(log, scene.chance.randrange(log.stat().st_size))
    return int(log is not None)


def flipped_log(scene):
    log = log_of(scene)
    if log:
        flip(log, scene.chance, scene.chance.randint(1, 20))
    return int(log is not None)


def flip(path, chance, times):
    content = bytearray(path.read_bytes())
    for _ in range(times):
        content[chance.randrange(len(content))] ^= chance.randint(1, 255)
    path.write_bytes(content)


def corrupted_page(scene):
    """A page of a finished or a half finished run becomes zeros, noise, or another page."""
    if scene.chance.random() < 0.5:
        certify(scene.path, scene.plan)
    else:
        begun(scene)
        with suppress(RunError):
            RunFile.open_to_write(scene.path).close()  # the log goes into the file
    content = bytearray(scene.path.read_bytes())
    pages = len(content) // 4096
    page = 4096 * scene.chance.randrange(pages)
    other = 4096 * scene.chance.randrange(pages)
    noise = scene.chance.randbytes(4096)
    content[page : page + 4096] = scene.chance.choice((bytes(4096), noise, content[other : other + 4096]))
    scene.path.write_bytes(content)
    return 1


def truncated_file(scene):
    certify(scene.path, scene.plan)
    os.truncate(scene.path, scene.chance.randrange(scene.path.stat().st_size))
    return 1


FAULTS = {
    "kill -9": killed,
    "stop and continue": stopped_and_continued,
    "Ctrl-C twice": interrupted_twice,
    "two writers": two_writers,
    "full disk": full_disk,
    "file size limit": file_size_limit,
    "unwritable folder": unwritable_folder,
    "truncated log": truncated_log,
    "flipped log": flipped_log,
    "corrupted page": corrupted_page,
    "truncated file": truncated_file,
}
DAMAGING = {"truncated log", "flipped log", "corrupted page", "truncated file"}
