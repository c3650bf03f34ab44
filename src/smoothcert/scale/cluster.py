"""The connection to the machines that draw."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smoothcert.errors import InputError, RunError
from smoothcert.plan import Cluster

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else a warning
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # of what happens elsewhere we say ourselves what matters
}
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's switch, on every system, between the machine's address (1) and 127.0.0.1 (0), read when Ray is imported."""


@contextmanager
def connected(cluster: Cluster) -> Iterator[Any]:
    """The ray module, connected to the cluster; a connection that was there before is used and left alone."""
    address = _started_here() if cluster.address == "auto" else cluster.address
    loopback = address is None or address.startswith("127.0.0.1:")
    ray = _import_ray(loopback)
    if ray.is_initialized():
        yield ray
        return
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        assert cluster.workers is not None
        settings |= {"num_cpus": cluster.workers * cluster.cpus, "include_dashboard": False}
    else:
        _require_answer(address)
    on_terminate = signal.getsignal(signal.SIGTERM)
    try:
        try:
            ray.init(address or "local", **settings)
        except Exception as error:
            reason = (str(error) or type(error).__name__).strip().splitlines()[0]
            if isinstance(error, ConnectionError):
                raise InputError(
                    f"{cluster} does not answer ({reason}): check the address and `ray status`; if it asks for a "
                    f"token, set RAY_AUTH_MODE=token."
                ) from error
            raise RunError(
                f"Ray did not start on {cluster} ({reason}): see whether there is memory and a processor free for it, "
                f"then run the same command again, or without the cluster."
            ) from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_terminate)  # Ray has put its own in place, which exits
        if loopback and not ray.util.get_node_ip_address().startswith("127."):
            raise InputError(f"Ray would listen to the network: set {LOOPBACK}=0 before Ray is imported.")
        yield ray
    finally:
        if dead_service(ray) is None:
            ray.shutdown()
        else:
            sys.excepthook = sys.__excepthook__  # Ray's would tell the dead service first, and wait for it


def dead_service(ray: Any) -> str | None:
    """A service of Ray's that this process needs and that is gone: Ray would end the process without a word.

    A client (ray://) needs none here; it learns of it by an error.
    """
    node = getattr(ray._private.worker, "_global_node", None)
    if node is None:
        return None
    host, _, port = node.gcs_address.rpartition(":")
    places = {"GCS": (socket.AF_INET, (host, int(port))), "raylet": (socket.AF_UNIX, node.raylet_socket_name)}
    for name, (family, address) in places.items():
        with socket.socket(family) as connection:
            connection.settimeout(1.0)
            try:
                connection.connect(address)
            except (ConnectionRefusedError, FileNotFoundError):
                return name
            except OSError:
                pass  # busy, or another kind of address: nobody can tell
    return None


def _import_ray(loopback: bool) -> Any:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if loopback:
        os.environ.setdefault(LOOPBACK, "0")
    try:
        import ray
    except ImportError:
        raise InputError("a cluster needs Ray: pip install 'smoothcert[ray]'.") from None
    return ray


def _started_here() -> str:
    """The address of the cluster that this machine belongs to, where `ray start` has left it."""
    note = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())) / "ray" / "ray_current_cluster"
    return os.environ.get("RAY_ADDRESS") or (note.read_text().strip() if note.exists() else "auto")


def _require_answer(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError) as error:
        raise InputError(f"nothing answers at the cluster's address {address} ({error}): check it.") from None
