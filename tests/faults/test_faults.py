"""Whatever happens to a run: resumed, it ends with the votes of one that nothing happened to, or is called damaged."""

import random
from contextlib import ExitStack, suppress
from itertools import cycle

import pytest

from faults.injection import DAMAGING, FAILED, FAULTS, PLANS, RUNNERS, Child, FileSizeLimit, Scene, certify, facts
from smoothcert import InputError, RunError, open_run
from smoothcert.store.doctor import diagnose
from smoothcert.store.file import RunFile
from survived import SURVIVED

FULL = {"kill -9": 14, "corrupted page": 41, "truncated log": 21, "flipped log": 21}
QUICK = [("kill -9", plan) for plan in PLANS] + list(zip(FAULTS, cycle(PLANS), strict=False))
"""What is tried once in any case: kills of every plan, and each other fault of one of them."""

CASES = [
    pytest.param(fault, plan, runner, seed, marks=[] if seed == 0 and (fault, plan) in QUICK else [pytest.mark.slow])
    for fault in FAULTS
    for plan in PLANS
    for runner in RUNNERS
    for seed in range(FULL.get(fault, 6))
]


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """What the run says that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    return {plan: facts(certify(folder / plan, plan)) for plan in PLANS}


@pytest.mark.parametrize(("fault", "plan", "runner", "seed"), CASES)
def test_nothing_is_lost(tmp_path, whole, fault, plan, runner, seed):
    with ExitStack() as undo:
        scene = Scene(tmp_path / "run.smoothcert", plan, runner, random.Random(f"{fault} {plan} {seed}"), undo)
        struck = FAULTS[fault](scene)
        assert facts(resumed(scene, may_be_damaged=fault in DAMAGING)) == whole[plan]
    SURVIVED[fault] += struck


def test_a_file_whose_log_had_no_room_left_stands_alone(tmp_path):
    """The votes fit into the file, and that it is no longer being written does not fit into the log."""
    with ExitStack() as undo:
        scene = Scene(tmp_path / "run.smoothcert", "fixed", "one process", random.Random(0), undo)
        assert Child(scene, FileSizeLimit(45_000)).code == FAILED
    assert [path.name for path in tmp_path.iterdir()] == ["run.smoothcert"]
    with RunFile.open_to_read(scene.path) as file:
        assert file.drawn
    certify(scene.path, "fixed")


def resumed(scene, may_be_damaged):
    """The run, gone on with; or a copy of what the doctor finds intact, gone on with."""
    try:
        run = certify(scene.path, scene.plan)
        facts(run)
        return run
    except (InputError, RunError):
        if not may_be_damaged:
            raise
    before = scene.path.read_bytes()
    saved = scene.path.with_name("saved.smoothcert")
    with suppress(InputError):  # its first page no longer says that it is a run file
        assert not diagnose(scene.path, saved).healthy
    assert scene.path.read_bytes() == before
    if saved.exists():
        assert diagnose(saved).healthy
        open_run(saved).certificates()
    return certify(saved, scene.plan)
