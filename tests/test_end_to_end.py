"""The whole way on real data: a ResNet-20, 100 CIFAR-10 images, stopped twice."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from smoothcert import open_run
from smoothcert.errors import InputError
from smoothcert.models import build


@pytest.mark.slow
def test_100_images_interrupted_twice_equal_the_uninterrupted_run(shared_data, tmp_path):
    torch.manual_seed(0)
    save_file(build("cifar_resnet20").state_dict(), tmp_path / "resnet20.safetensors")
    command = [
        sys.executable,
        "-m",
        "smoothcert",
        "certify",
        "cifar_resnet20",
        str(shared_data / "cifar10/test.parquet"),
    ]
    command += ["--weights", "resnet20.safetensors", "--sigma", "0.5", "--skip", "100", "--n", "200", "--batch", "100"]
    stopped = tmp_path / "stopped.smoothcert"
    for done in (10, 50):
        process = subprocess.Popen(
            [*command, "--out", stopped.name], cwd=tmp_path, stdout=subprocess.DEVNULL, preexec_fn=ignore_nothing
        )
        while inputs_done(stopped) < done:
            assert process.poll() is None
            time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 1
        assert inputs_done(stopped) < 100
    subprocess.run([*command, "--out", stopped.name], cwd=tmp_path, check=True)
    subprocess.run([*command, "--out", "whole.smoothcert"], cwd=tmp_path, check=True)
    ours, whole = open_run(stopped), open_run(tmp_path / "whole.smoothcert")
    assert len(ours) == len(whole) == 100
    np.testing.assert_array_equal(ours.tally.selections, whole.tally.selections)
    np.testing.assert_array_equal(ours.tally.estimations, whole.tally.estimations)


def ignore_nothing():
    """A shell starts background jobs with Ctrl-C ignored, and this may be one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def inputs_done(path):
    try:
        return len(open_run(path))
    except InputError:
        return 0
