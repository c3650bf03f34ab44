"""A Ray cluster of several nodes on this machine."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from smoothcert.scale.cluster import LOOPBACK, QUIET

os.environ |= {**QUIET, LOOPBACK: "0"}

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
    """Ray gives a node half a minute to start, too little on a machine that is busy."""
    for _ in range(5):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    return start()


def is_worker(stat, raylets):
    """Is it the process of a `Worker`, and of one of these parents?"""
    try:
        name, parent = stat.with_name("cmdline").read_bytes(), stat.read_text().rpartition(") ")[2].split()[1]
    except OSError:
        return False  # it has ended meanwhile
    return name.startswith(b"ray::Worker") and int(parent) in raylets


@pytest.fixture(scope="session")
def nodes():
    pytest.importorskip("ray", reason="Ray is not installed")
    nodes = Nodes()
    yield nodes
    nodes.cluster.shutdown()


def pytest_terminal_summary(terminalreporter):
    from survived import SURVIVED

    if SURVIVED:
        terminalreporter.write_line("survived: " + ", ".join(f"{name} {times} ×" for name, times in SURVIVED.items()))
