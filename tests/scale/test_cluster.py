"""Votes from a Ray cluster are those of one process, whatever dies on the way."""

import os
import random
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

import interruptible
from interruptible import IMAGES
from scale.moody import DIE, RAISE, moody, sociable, unhurried
from smoothcert import InputError, RunError, open_run
from smoothcert.plan import Classifier, Cluster, Duels, Labels, Margins, Softmax, Sparsemax, UntilRadii
from smoothcert.plan.schedules import Fixed, SelectFirst
from smoothcert.sampling.blocks import Input, Phase, blocks_of, join
from smoothcert.sampling.engines import open_engine
from smoothcert.sampling.executor import Executor, Job
from smoothcert.sampling.noise import open_noise
from smoothcert.scale import workers as workers_module
from smoothcert.scale.executor import ClusterExecutor
from smoothcert.scale.workers import Workers
from smoothcert.store.schema import pack
from survived import SURVIVED

ADAPTIVE = {"radii": [0.05, 0.2], "max_n": 5_000}


@pytest.fixture(scope="module")
def workers(nodes):
    with nodes.added(2), Workers(Cluster(nodes.address), moody) as workers:
        yield workers


def job(**changes):
    return Job(
        **{
            "noise": open_noise("gaussian", 0.3, None),
            "num_classes": 3,
            "seed": 0,
            "batch": 64,
            "votes": Labels(),
            **changes,
        }
    )


def inputs(position):
    return Input(str(position), IMAGES[position % 12] + np.float32(position - position % 12))


def both(workers, **changes):
    asked = job(**changes)
    return workers.executor(inputs, asked), Executor(open_engine(moody), inputs, asked)


def fixed():
    return Fixed(inputs=12, draws={Phase.SELECTION: 50, Phase.ESTIMATION: 1930})


def adaptive():
    return UntilRadii(radii=(0.05, 0.2), max_n=5_000).schedule(Classifier(0.3, 3, votes=Labels()), 100, 0.001, 12)


def duelling():
    return UntilRadii(radii=(0.05, 0.2), max_n=5_000).schedule(Classifier(0.3, 3), 100, 0.001, 12)


def selecting_first():
    return SelectFirst(inputs=12, draws={Phase.SELECTION: 150, Phase.ESTIMATION: 1930})


def outcome(executor, schedule, at=None):
    """Votes by input and phase, and claims by input; votes of an input must come in order. `at` is called at each."""
    drawn, claims = {}, {}
    for told, v in enumerate(executor.run(schedule)):
        parts = drawn.setdefault((v.position, v.phase), [])
        assert v.first == (parts[-1].last if parts else 0)
        parts.append(v)
        if claim := schedule.tell(v):
            claims[claim.position] = claim
        if at:
            at(told)
    return {key: facts(join(parts)) for key, parts in drawn.items()}, claims


def facts(v):
    return pack(replace(v, seconds=0.0))


@pytest.mark.parametrize("schedule", [fixed, adaptive])
@pytest.mark.parametrize("batch", [37, *(pytest.param(batch, marks=pytest.mark.slow) for batch in (64, 400))])
def test_votes_and_claims_are_those_of_one_process(workers, schedule, batch):
    cluster, here = both(workers, batch=batch)
    assert outcome(cluster, schedule()) == outcome(here, schedule())


@pytest.mark.parametrize(
    ("kind", "schedule"),
    [(kind, selecting_first) for kind in (Duels(), Margins(0.5), Softmax(0.5), Sparsemax(0.5))] + [(Duels(), duelling)],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_what_scores_add_up_to_is_as_in_one_process(workers, kind, schedule):
    cluster, here = both(workers, votes=kind)
    there = outcome(cluster, schedule())
    assert all(beside for *_, beside, _, _ in there[0].values())
    assert there == outcome(here, schedule())


def test_the_width_of_margins_is_chosen_by_workers_as_in_one_process(nodes, tmp_path):
    here = interruptible.certify(tmp_path / "here", votes=Margins(), n=430)
    with nodes.added(1):
        there = interruptible.certify(
            tmp_path / "there", votes=Margins(), n=430, cluster=Cluster(nodes.address, workers=1)
        )
    assert there.plan.classifier.votes == here.plan.classifier.votes
    assert interruptible.others(there) == interruptible.others(here)


def test_rows_that_see_each_other_are_found_by_a_worker(nodes, workers, tmp_path):
    assert workers.fault(inputs(0), job()) is None
    with nodes.added(1), pytest.raises(InputError, match="gives the same rows other answers"):
        interruptible.certify(tmp_path / "run", sociable, cluster=Cluster(nodes.address, workers=1))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("schedule", [fixed, adaptive])
def test_workers_killed_on_the_way_cost_nothing(nodes, workers, schedule):
    cluster, here = both(workers)
    killed = []

    def kill(told):
        if told in (3, 20):
            killed.append(random.choice(nodes.workers()))
            os.kill(killed[-1], signal.SIGKILL)

    assert outcome(cluster, schedule(), at=kill) == outcome(here, schedule())
    assert len(killed) == 2
    SURVIVED["Ray workers killed"] += 2


def test_an_endless_schedule_is_read_only_as_far_as_there_is_room(workers):
    asked = []

    def endless():
        for block in blocks_of(0, Phase.COUNT, 10**12):
            asked.append(block)
            yield block

    run = both(workers)[0].run(endless())
    for _ in range(2_000):
        next(run)
    run.close()
    assert len(asked) < 2_000 + 32 * 100 * 2


@pytest.mark.parametrize(("first", "changes"), [(0, {"num_classes": 4}), (RAISE, {})], ids=["classes", "model"])
def test_errors_of_a_worker_are_those_of_one_process(workers, first, changes):
    messages = []
    for executor in both(workers, **changes):
        with pytest.raises((InputError, RunError)) as error:
            list(executor.run(blocks_of(first, Phase.COUNT, 300)))
        messages.append((type(error.value), str(error.value)))
    assert messages[0] == messages[1]


def test_draws_that_kill_every_worker_are_not_tried_for_ever(workers, monkeypatch):
    monkeypatch.setattr(workers_module, "TRIES", 2)
    with pytest.raises(RunError, match="2 workers died over the same draws"):
        list(both(workers)[0].run(blocks_of(DIE, Phase.COUNT, 300)))


@pytest.mark.slow
@pytest.mark.parametrize("changes", [pytest.param({}, id="fixed"), pytest.param(ADAPTIVE, id="adaptive")])
def test_nodes_killed_while_running(nodes, tmp_path, changes):
    whole = interruptible.certify(tmp_path / "whole.smoothcert", **changes)
    killed = []
    with nodes.added(2) as there:

        def kill(draws, done):
            if draws and done > 0.2 + 0.4 * len(killed) and len(killed) < 2:
                killed.append(there.pop(0))
                nodes.kill(killed[-1])
                there.append(nodes.add())

        path = tmp_path / "cluster.smoothcert"
        run = interruptible.certify(
            path, unhurried, cluster=Cluster(nodes.address, workers=2), on_progress=kill, **changes
        )
    assert len(killed) == 2
    assert interruptible.votes(run) == interruptible.votes(whole)
    assert [c.radius for c in run.certificates()] == [c.radius for c in whole.certificates()]
    SURVIVED["Ray nodes killed"] += 2


def test_when_no_worker_is_left_the_run_ends_and_can_go_on(nodes, tmp_path, uninterrupted, monkeypatch):
    path = tmp_path / "run.smoothcert"
    with nodes.added(1) as there:

        def kill(draws, done):
            if done > 0.3 and there:
                monkeypatch.setattr(workers_module, "PATIENCE", 2.0)
                nodes.kill(there.pop())

        with pytest.raises(RunError, match="had no worker for 2 s"):
            interruptible.certify(path, unhurried, cluster=Cluster(nodes.address, workers=1), on_progress=kill)
    assert 0 < len(open_run(path)) < 12
    run = interruptible.certify(path, unhurried)
    assert interruptible.votes(run) == uninterrupted
    SURVIVED["Ray nodes killed"] += 1


class Unlike(torch.nn.Module):
    """A module that has other weights wherever it arrives."""

    def __reduce__(self):
        return arrived, ()

    def forward(self, x):
        return x.flatten(1)[:, :3]


def arrived():
    module = Unlike()
    module.register_buffer("process", torch.tensor(os.getpid()))
    return module


def test_workers_that_differ_are_refused(nodes):
    with nodes.added(2), Workers(Cluster(nodes.address, workers=2), Unlike()) as workers:
        run = ClusterExecutor(workers, inputs, job()).run(blocks_of(0, Phase.COUNT, 10**7))
        with pytest.raises(InputError, match="two workers differ"):
            list(run)


@pytest.mark.slow
def test_the_command_line_with_workers_of_its_own(tmp_path):
    """One process more, and the same certificates; nothing of Ray's is on the screen."""
    command = [sys.executable, "-m", "smoothcert", "certify", "digits_cnn", "digits", "--sigma", "0.25"]
    command += ["--limit", "4", "--n", "500", "--batch", "100", "--seed", "0", "--out"]
    shown = []
    for name, more in (("here", []), ("there", ["--workers", "1"])):
        done = subprocess.run([*command, name, *more], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "ray" not in done.stderr.lower()
        shown.append(interruptible.votes(open_run(tmp_path / name)))
    assert shown[0] == shown[1]


def test_an_address_where_nothing_answers_is_refused_at_once():
    script = "from smoothcert.scale.workers import Cluster, Workers; Workers(Cluster('127.0.0.1:9'), len)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "InputError: nothing answers at the cluster's address 127.0.0.1:9" in done.stderr


def test_a_model_that_cannot_be_sent_is_refused(workers, nodes):
    stuck = threading.Lock()
    with pytest.raises(InputError, match="cannot be sent to workers"):
        Workers(Cluster(nodes.address), lambda batch: stuck)


def test_a_cluster_without_room_is_refused(nodes):
    with pytest.raises(InputError, match="0 GPUs, too few for one worker"):
        Workers(Cluster(nodes.address, gpus=1), moody)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "an address or a number of workers"),
        ({"workers": 0}, "workers must be a whole number of at least 1"),
        ({"workers": 1, "cpus": 0}, "cpus must be"),
        ({"workers": 1, "gpus": 1.5}, "a fraction of one GPU or a whole number"),
        ({"workers": 1, "gpus": -1}, "a fraction of one GPU or a whole number"),
    ],
)
def test_clusters_that_cannot_be(arguments, message):
    with pytest.raises(InputError, match=message):
        Cluster(**arguments)


def test_without_ray_one_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'smoothcert\[ray\]'"):
        interruptible.certify(tmp_path / "run.smoothcert", cluster=Cluster(workers=1))
    assert not (tmp_path / "run.smoothcert").exists()
    with pytest.raises(InputError, match="there is no run file"):
        open_run(tmp_path / "run.smoothcert")
