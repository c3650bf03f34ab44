"""The same blocks on many machines: a fleet of Ray workers draws them, the driver alone writes their votes."""

from smoothcert.scale.cluster import Cluster
from smoothcert.scale.executor import ClusterExecutor
from smoothcert.scale.fleet import Fleet

__all__ = ["Cluster", "ClusterExecutor", "Fleet"]
