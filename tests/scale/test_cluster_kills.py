"""Workers, nodes and drivers killed at random moments: the votes are those of one process that was left alone."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import interruptible
from scale.driver import PLANS
from scale.moody import unhurried
from smoothcert import open_run
from smoothcert.errors import InputError, RunError
from smoothcert.models import load_model
from smoothcert.plan import Cluster
from smoothcert.scale import workers
from smoothcert.scale.workers import Workers
from survived import SURVIVED

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent


def facts(run):
    return interruptible.votes(run), [(c.prediction, c.radius, c.n) for c in run.certificates()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return {name: facts(interruptible.certify(folder / name, **plan)) for name, plan in PLANS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_workers_killed_at_random_moments(nodes, tmp_path, whole, plan):
    chance, kills, timers = random.Random(0), [], []

    def kill():
        with suppress(ProcessLookupError, IndexError):  # there may be no worker just now
            os.kill(chance.choice(nodes.workers()), signal.SIGKILL)
            kills.append(1)

    def sometimes(draws, done):
        if draws and chance.random() < 1 / 15:
            timers.append(threading.Timer(chance.uniform(0, 0.3), kill))
            timers[-1].start()

    with nodes.added(2):
        round = 0
        while len(kills) < 20:
            round += 1
            run = interruptible.certify(
                tmp_path / f"{round}.smoothcert",
                unhurried,
                cluster=Cluster(nodes.address, workers=2),
                on_progress=sometimes,
                **PLANS[plan],
            )
            assert facts(run) == whole[plan]
        for timer in timers:
            timer.join()
    SURVIVED["Ray workers killed"] += len(kills)


@pytest.mark.slow
@pytest.mark.parametrize(("own", "plan"), [(True, "fixed"), (False, "fixed"), (False, "adaptive")])
def test_drivers_killed_at_random_moments(nodes, tmp_path, whole, own, plan):
    chance, path = random.Random(0), tmp_path / "run.smoothcert"
    command = [sys.executable, "-m", "scale.driver", str(path), "" if own else nodes.address, plan]
    with nodes.added(2):
        kills = sum(killed_on_the_way(command, path, chance) for _ in range(6))
        subprocess.run(command, cwd=TESTS, check=True)
    assert kills
    assert facts(open_run(path)) == whole[plan]
    SURVIVED["Ray drivers killed"] += kills


def killed_on_the_way(command, path, chance):
    """Whether the driver was still there to be killed, some time after it had written something."""
    before = draws(path)
    driver = subprocess.Popen(command, cwd=TESTS, start_new_session=True)
    while driver.poll() is None and draws(path) <= before:
        time.sleep(0.1)
    time.sleep(chance.uniform(0, 0.5))
    driver.kill()
    return driver.wait() == -signal.SIGKILL


def draws(path):
    """Draws that are stored."""
    from smoothcert.store.file import RunFile

    try:
        with RunFile.open_to_read(path) as file:
            return sum(v.draws for v in file.votes())
    except (InputError, RunError):
        return 0


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"n": 500}, {"radii": [0.25, 0.5], "max_n": 1_000}], ids=["fixed", "adaptive"])
def test_cifar10_with_a_node_killed_twice(nodes, shared_data, tmp_path, changes):
    torch.set_num_threads(1)
    weights = ROOT / "experiments/models/cifar_small-noise0.50.safetensors"
    model, data = load_model("cifar_small", weights=weights, device="cpu"), shared_data / "cifar10/test.parquet"
    plan = {"sigma": 0.5, "noise": "grid", "skip": 1_000, "batch": 100, "seed": 0, **changes}
    whole = interruptible.certify_dataset(model, data, out=tmp_path / "whole.smoothcert", **plan)
    killed = []
    with nodes.added(2) as there:

        def kill(draws, done):
            if draws and len(killed) < 2 and done > 0.2 + 0.4 * len(killed):
                killed.append(there.pop(0))
                nodes.kill(killed[-1])
                there.append(nodes.add())

        cluster = Cluster(nodes.address, workers=2)
        run = interruptible.certify_dataset(
            model, data, out=tmp_path / "run.smoothcert", cluster=cluster, on_progress=kill, **plan
        )
    assert len(killed) == 2
    assert facts(run) == facts(whole)
    SURVIVED["Ray nodes killed"] += 2


class Deadly(torch.nn.Module):
    """A module that ends the process in which it arrives."""

    def __reduce__(self):
        return os._exit, (1,)


@pytest.mark.slow
def test_a_model_that_no_worker_survives_is_not_tried_for_ever(nodes, monkeypatch):
    monkeypatch.setattr(workers, "TRIES", 2)
    with nodes.added(1), pytest.raises(RunError, match="3 workers in a row died before they had the model"):
        Workers(Cluster(nodes.address, workers=1), Deadly())


@pytest.mark.slow
def test_ctrl_c_ends_everything_it_started(tmp_path):
    command = [sys.executable, "-m", "smoothcert", "certify", "digits_cnn", "digits", "--sigma", "0.25"]
    command += ["--batch", "100", "--limit", "40", "--n", "10000", "--seed", "0", "--out", "run.smoothcert"]
    path = tmp_path / "run.smoothcert"
    process = subprocess.Popen(
        [*command, "--workers", "2"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while draws(path) == 0:
        assert process.poll() is None
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "run the same command to go on" in out + err
    assert "Traceback" not in err
    assert 0 < len(open_run(path)) < 40
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    subprocess.run([*command[:-1], "whole.smoothcert"], cwd=tmp_path, check=True, capture_output=True)
    assert facts(open_run(path)) == facts(open_run(tmp_path / "whole.smoothcert"))
