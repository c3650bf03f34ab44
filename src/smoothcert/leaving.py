"""What is done before the process is left at once, without waiting for what its threads are at.

A call into C cannot be interrupted. Whoever has something to keep or to remove says so for as long as it has.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

Act = Callable[[], str | None]
"""Something to do; it may return what there is to say."""

ENOUGH = 0.5
"""Seconds that all acts may take together."""

_acts: list[Act] = []


@contextmanager
def before_leaving(act: Act) -> Iterator[None]:
    """Inside, the act is done if the process is left; the last to come is the first to act."""
    _acts.append(act)
    try:
        yield
    finally:
        _acts.remove(act)


def leave(code: int, words: str) -> NoReturn:
    """Does what is to be done, says the words or those of the last act that had some, and ends the process."""
    said = [words]

    def do_all() -> None:
        for act in reversed(_acts):
            with suppress(BaseException):
                said.append(act() or said[-1])

    doing = threading.Thread(target=do_all, daemon=True)  # an act may wait for whatever the process is stuck in
    doing.start()
    doing.join(ENOUGH)
    with suppress(OSError):
        os.write(2, f"{said[-1]}\n".encode())
    os._exit(code)
