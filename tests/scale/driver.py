"""A process to kill: certifies into a file with workers of its own, or of a cluster, and commits often.

python -m scale.driver FILE ADDRESS PLAN
"""

import sys

import interruptible
from scale.moody import unhurried
from smoothcert.plan import Cluster
from smoothcert.store import file

LONG = {"long": {"n": 20_000}}
PLANS = {"fixed": {}, "adaptive": {"radii": [0.05, 0.2], "max_n": 5_000}}

if __name__ == "__main__":
    file.COMMIT_SECONDS = 0.3
    path, address, plan = sys.argv[1:]
    interruptible.certify(path, unhurried, cluster=Cluster(address or None, workers=2), **{**PLANS, **LONG}[plan])
