"""Ctrl-C, SIGTERM and SIGHUP are answered within two seconds, whatever the process is at."""

from __future__ import annotations

import os
import signal
import sys
import threading
from time import sleep
from types import FrameType

from smoothcert.leaving import leave

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE = 1.0
"""Seconds that the main thread has to end the command by itself."""

STOPPED = "smoothcert: stopped."
SHOW_CURSOR = b"\x1b[?25h"

heard = threading.Event()
"""Set from when a signal has come."""


def answer_signals() -> None:
    """From now on they interrupt the main thread, and end the process where it does not end in time.

    Python runs handlers only between the main thread's own steps, so another thread is woken as well. What the process
    was started to ignore (nohup, a job in the background) stays ignored.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    sys.unraisablehook = _tell_unless_interrupted
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), name="signals", daemon=True).start()


def _interrupt(signum: int, frame: FrameType | None) -> None:
    heard.set()
    raise KeyboardInterrupt


def _tell_unless_interrupted(unraisable: sys.UnraisableHookArgs) -> None:
    """An interruption inside a destructor is lost, and nothing to tell of: the process is left all the same."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)


def _watch(reader: int) -> None:
    while os.read(reader, 1)[0] not in SIGNALS:
        pass
    heard.set()
    sleep(PATIENCE)
    if sys.stderr.isatty():
        os.write(2, SHOW_CURSOR)
    leave(1, STOPPED)
