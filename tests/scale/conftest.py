"""A Ray cluster of several nodes on this machine."""

import os
import signal
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from smoothcert.scale.cluster import LOOPBACK, QUIET

os.environ |= {**QUIET, LOOPBACK: "0", "RAY_worker_niceness": "0"}  # a machine that is busy would starve nice workers

SETTINGS = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "object_store_memory": 80 * 2**20}


class Nodes:
    """A head that draws nothing, and nodes with room for one worker each."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        self.cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **SETTINGS}))

    @property
    def address(self):
        return self.cluster.address

    def add(self):
        return patiently(lambda: self.cluster.add_node(num_cpus=1, **SETTINGS))

    def kill(self, node):
        self.cluster.remove_node(node, allow_graceful=False)

    @contextmanager
    def added(self, number):
        """So many more nodes for a while, in a list to which their replacements are to be added."""
        nodes = [self.add() for _ in range(number)]
        try:
            yield nodes
        finally:
            for node in nodes:
                if node in self.cluster.worker_nodes:
                    self.kill(node)

    def workers(self):
        """Process ids of the workers on these nodes."""
        raylets = {node.all_processes["raylet"][0].process.pid for node in self.cluster.worker_nodes}
        return [int(p.parent.name) for p in Path("/proc").glob("[0-9]*/stat") if is_worker(p, raylets)]


def patiently(start):
    """Ray gives a node half a minute to start, too little on a machine that is busy, and leaves half of it behind."""
    for _ in range(5):
        before = children()
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
            for pid in children() - before:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    return start()


def children():
    """Process ids of the processes that this one has started."""
    return {int(p.parent.name) for p in Path("/proc").glob("[0-9]*/stat") if parent_of(p) == os.getpid()}


def parent_of(stat):
    try:
        return int(stat.read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return None  # it has ended meanwhile


def is_worker(stat, raylets):
    """Is it the process of a `Worker`, and of one of these parents?"""
    try:
        name = stat.with_name("cmdline").read_bytes()
    except OSError:
        return False  # it has ended meanwhile
    return name.startswith(b"ray::Worker") and parent_of(stat) in raylets


@pytest.fixture(scope="session")
def nodes():
    pytest.importorskip("ray", reason="Ray is not installed")
    nodes = Nodes()
    yield nodes
    nodes.cluster.shutdown()


def pytest_itemcollected(item):
    item.add_marker(pytest.mark.xdist_group("ray"))  # one cluster for all of them, in one of the processes
