"""The run file: one SQLite database a run, votes in, votes out, import and export."""

from smoothcert.store.patience import PATIENCE
from smoothcert.store.run import Run, open_run

__all__ = ["PATIENCE", "Run", "open_run"]
