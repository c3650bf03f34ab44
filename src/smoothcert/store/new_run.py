"""Run files made from others: written whole or not at all, never over something that is there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smoothcert.errors import InputError
from smoothcert.files import sync_folder, unpredictable
from smoothcert.plan import Plan
from smoothcert.store.file import RunFile
from smoothcert.store.schema import Info


@contextmanager
def new_run(out: Path, plan: Plan, info: Info) -> Iterator[RunFile]:
    """A file to write into, which takes its name when the block ends well and is gone when it does not."""
    if os.path.lexists(out):
        raise InputError(f"{out} exists already: choose another `out`.")
    partial = unpredictable(out)
    try:
        with RunFile.open_to_write(partial) as file:
            file.declare(plan, info)
            yield file
            file.commit()
        os.replace(partial, out)
        sync_folder(out.parent)
    finally:
        for suffix in ("", "-wal", "-shm"):
            partial.with_name(partial.name + suffix).unlink(missing_ok=True)
