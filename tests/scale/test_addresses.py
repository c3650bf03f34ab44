"""`--cluster auto` and `--cluster ray://…` reach a cluster that `ray start` made, and draw the votes of one process."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from time import sleep

import numpy as np
import pytest

from smoothcert import open_run
from smoothcert.scale.cluster import LOOPBACK, QUIET

pytestmark = pytest.mark.slow


def free_port():
    with closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def head():
    """The environment of a cluster's users, and the port for those that do not belong to it."""
    pytest.importorskip("ray")
    pytest.importorskip("grpc")
    port, client = free_port(), free_port()
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # in a short place: the names of sockets have an end
    token = folder / "token"
    token.write_text("0123456789abcdef" * 4)
    own = {"RAY_TMPDIR": str(folder), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    environment = {**os.environ, **QUIET, **own}
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--num-cpus", "2"]
    command += ["--node-ip-address", "127.0.0.1", "--port", str(port), "--ray-client-server-port", str(client)]
    command += ["--include-dashboard", "false", "--object-store-memory", str(80 * 2**20)]
    process = subprocess.Popen(command, env={**environment, LOOPBACK: "0"}, stdout=subprocess.DEVNULL, cwd=folder)
    try:
        for _ in range(240):
            with closing(socket.socket()) as s:
                if s.connect_ex(("127.0.0.1", client)) == 0:
                    break
            assert process.poll() is None, "the head did not start"
            sleep(0.5)
        yield environment, client
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def certify(out, *options, env=None):
    command = [sys.executable, "-m", "smoothcert", "certify", "digits_cnn", "digits", "--sigma", "0.25"]
    command += ["--n", "500", "--limit", "3", "--batch", "100", "--engine", "torch", "--seed", "0"]
    done = subprocess.run([*command, "--out", str(out), *options], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return open_run(out).tally.estimations


@pytest.mark.parametrize("kind", ["auto", "ray://"])
def test_the_votes_of_one_process(head, kind, tmp_path):
    environment, client = head
    environment = {name: value for name, value in environment.items() if name != LOOPBACK}  # as users have it
    address = f"ray://127.0.0.1:{client}" if kind == "ray://" else "auto"
    there = certify(tmp_path / "there.smoothcert", "--cluster", address, env=environment)
    np.testing.assert_array_equal(there, certify(tmp_path / "here.smoothcert"))
