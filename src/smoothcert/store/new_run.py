"""Run files that are written whole or not at all, never over something that is there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smoothcert.errors import InputError, RunError
from smoothcert.files import sync_folder, unpredictable
from smoothcert.leaving import before_leaving
from smoothcert.plan import Plan
from smoothcert.store.file import RunFile
from smoothcert.store.holding import check_place
from smoothcert.store.schema import Info


@contextmanager
def new_run(out: Path, plan: Plan, info: Info) -> Iterator[RunFile]:
    """A file made from others, under this plan."""
    if os.path.lexists(out):
        raise InputError(f"{out} exists already: choose another `out`.")
    with new_file(out) as file:
        file.declare(plan, info)
        yield file
        file.commit()


@contextmanager
def new_file(out: Path) -> Iterator[RunFile]:
    """A file to write into, which takes its name when the block ends well and is gone when it does not.

    A file of that name without a run in it is replaced; one that another process has made meanwhile is not. A link is
    refused, wherever it leads: somebody may have planted it.
    """
    if out.is_symlink():
        raise InputError(f"{out} is a link and leads to no run: remove it or choose another `out`.")
    check_place(out)
    place = out.resolve()
    replaced, partial = place.exists(), unpredictable(place)
    try:
        with before_leaving(lambda: _remove(partial)), RunFile.open_to_write(partial) as file:
            yield file
            file.settle()
        if replaced:
            os.replace(partial, place)
        else:
            os.link(partial, place)
        sync_folder(place.parent)
    except FileExistsError:
        raise RunError(f"another process has begun {out} meanwhile: the same command goes on with it.") from None
    finally:
        _remove(partial)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
