"""Ctrl-C, SIGTERM and SIGHUP are answered within two seconds, whatever the process is at."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from smoothcert.leaving import leave

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE = 1.0
"""Seconds that the main thread has to end the command by itself."""

ASKED = 20
"""How often it is asked in that time."""

STOPPED = "smoothcert: stopped."
IMPORTS = "<frozen importlib._bootstrap>"
Handler = Callable[[int, FrameType | None], None] | signal.Handlers
SHOW_CURSOR = b"\x1b[?25h"


@contextmanager
def answering_signals(heard: threading.Event) -> Iterator[None]:
    """Inside, they interrupt the main thread, and end the process where it does not end in time.

    The event is set when one comes; those behind it are not needed, and change nothing.

    Python runs handlers only between the main thread's own steps, so another thread is woken as well. No import is
    interrupted, because libraries whose own code imports abort if it is: the thread asks again, and ends the process
    where nothing helps. What the process was started to ignore (nohup, a job in the background) stays ignored.
    """
    answered, ended = threading.Event(), threading.Event()

    def interrupt(signum: int, frame: FrameType | None) -> None:
        heard.set()
        if not answered.is_set() and not _importing(frame):
            answered.set()
            raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in SIGNALS}
    listened = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    sys.unraisablehook = _tell_unless_interrupted
    for number in listened:
        signal.signal(number, interrupt)
    woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader, heard, answered, ended), name="signals", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(woken)
        os.close(writer)  # which wakes the thread as well
        for number, handler in listened.items():
            signal.signal(number, handler)
        sys.unraisablehook = sys.__unraisablehook__


def only_end(stopped: bool) -> None:
    """From now on a signal waits for the end of the process, and brings it about where it does not come.

    Where one has stopped the command, none is waited for: threads of the model's may go on for as long as they like.
    """

    def end() -> None:
        time.sleep(PATIENCE / 2 if stopped else PATIENCE)
        os._exit(1)

    def end_soon(*_: object) -> None:
        with suppress(RuntimeError):  # there is no thread any more to be had
            threading.Thread(target=end, daemon=True).start()

    _set(end_soon)
    if stopped:
        _flush()
        end_soon()


def last_act(heard: threading.Event) -> None:
    """What Python sets back at its very end would kill the process; one that was stopped does not wait for libraries
    to be taken down, which takes torch a second."""
    _set(signal.SIG_IGN)
    if heard.is_set():
        _flush()
        os._exit(1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def _set(handler: Handler) -> None:
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != IMPORTS:
        frame = frame.f_back
    return frame is not None


def _tell_unless_interrupted(unraisable: sys.UnraisableHookArgs) -> None:
    """An interruption inside a destructor is lost, and nothing to tell of: the process is left all the same."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)


def _watch(reader: int, heard: threading.Event, answered: threading.Event, ended: threading.Event) -> None:
    with open(reader, "rb", buffering=0) as signals:  # until nothing is written any more
        while (byte := signals.read(1)) and byte[0] not in SIGNALS:
            pass
        if not byte:
            return
        heard.set()
        for _ in range(ASKED):
            if ended.wait(PATIENCE / ASKED):
                signals.readall()
                return
            if not answered.is_set():
                signal.pthread_kill(threading.main_thread().ident or 0, byte[0])
        if sys.stderr.isatty():
            os.write(2, SHOW_CURSOR)
        leave(1, STOPPED)
