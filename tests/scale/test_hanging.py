"""What neither answers nor dies: a worker that hangs, and Ray's own services when they are gone."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import interruptible
from interruptible import votes
from scale.conftest import parent_of
from scale.moody import unhurried
from smoothcert import open_run
from smoothcert.plan import Cluster
from smoothcert.scale import workers

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_worker_that_hangs_without_dying(nodes, tmp_path, uninterrupted, monkeypatch, caplog):
    monkeypatch.setattr(workers, "LEAST_SECONDS", 3.0)
    hanging, others = [], nodes.workers()  # those of tests before this one may not have ended yet

    def hang(draws, done):
        if draws > 3_000 and not hanging:
            hanging.append(next(pid for pid in nodes.workers() if pid not in others))
            os.kill(hanging[0], signal.SIGSTOP)

    with nodes.added(2):
        cluster = Cluster(nodes.address, workers=2)
        run = interruptible.certify(tmp_path / "run.smoothcert", unhurried, cluster=cluster, on_progress=hang)
        with suppress(ProcessLookupError):
            os.kill(hanging[0], signal.SIGKILL)
    assert votes(run) == uninterrupted
    assert "a worker hangs: its draws are given to others" in caplog.text


def services(driver, name):
    """Process ids of the services of this name that a driver has started."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            program = stat.with_name("cmdline").read_bytes().partition(b"\0")[0]
            if parent_of(stat) == driver and program.endswith(name.encode()):
                yield int(stat.parent.name)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "told"), [("raylet", "raylet"), ("gcs_server", "GCS")])
def test_a_killed_service_ends_in_one_sentence(tmp_path, name, told):
    pytest.importorskip("ray", reason="Ray is not installed")
    path = tmp_path / "run.smoothcert"
    command = [sys.executable, "-m", "scale.driver", str(path), "", "long"]
    driver = subprocess.Popen(command, cwd=TESTS, stderr=subprocess.PIPE, text=True)
    while not drawn(path):
        assert driver.poll() is None
        time.sleep(0.1)
    for pid in services(driver.pid, name):
        os.kill(pid, signal.SIGKILL)
    errors = driver.communicate(timeout=120)[1]
    assert driver.returncode == 1
    assert errors.rstrip().endswith(f"Ray's {told} has died on this machine: run the same command to go on.")
    assert drawn(path)


def drawn(path):
    return path.exists() and len(open_run(path)) > 0
