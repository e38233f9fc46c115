"""Stop signals: Ctrl-C, SIGTERM, and SIGHUP of a closed terminal.

A signal ends the process at once (`end_on_signals`) until there is something to clean up; then it unwinds the stack
(`unwind_on_signal`). Training saves first (`gptcli.cli.graceful_stop`). The exit code is always 128 plus the signal.
This module imports little, since Ctrl-C shows a traceback until its imports are done.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STDERR = 2
_SHOW_CURSOR = b"\x1b[?25h"


class Stopped(KeyboardInterrupt):
    """Raised by `unwind_on_signal` when a stop signal arrives."""

    def __init__(self, signum: int) -> None:
        self.signum = signum
        self.announced = False
        """Whether the stop was announced."""


def heeded_signals() -> list[signal.Signals]:
    """The stop signals that this process was not started to ignore, as `nohup` and a shell's `&` do."""
    return [signum for signum in STOP_SIGNALS if signal.getsignal(signum) is not signal.SIG_IGN]


def end_on_signals() -> None:
    """Let each stop signal end the process at once, without a traceback."""

    def handle(signum: int, _frame: FrameType | None) -> None:
        announce_stop()
        os._exit(128 + signum)

    for signum in heeded_signals():
        signal.signal(signum, handle)


def announce_stop() -> None:
    """Say on a terminal that the program was stopped; rank 0 speaks for all. Safe in a signal handler."""
    if os.environ.get("RANK", "0") != "0":
        return
    with suppress(OSError):
        if os.isatty(_STDERR):
            os.write(_STDERR, b"\r\x1b[KStopped.\n")  # over the ^C that the terminal has shown


@contextmanager
def unwind_on_signal() -> Iterator[Callable[[], int]]:
    """Raise Stopped at the first stop signal while this is open; the second one ends the process at once.

    A signal during an import ends it at once too: C++ modules abort when an exception passes through them. Yields a
    function that returns the signal, or 0 before one arrives: code in between may swallow the exception.
    """
    received: list[int] = []

    def handle(signum: int, frame: FrameType | None) -> None:
        if received:
            os._exit(128 + signum)
        received.append(signum)
        if _is_importing(frame):
            announce_stop()
            end_now(128 + signum)
        raise Stopped(signum)

    previous = {signum: signal.signal(signum, handle) for signum in heeded_signals()}
    try:
        yield lambda: received[0] if received else 0
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


def end_now(code: int) -> None:
    """End the process with its output written, but without waiting for threads or running `atexit` functions."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, RuntimeError):  # RuntimeError: a signal came while the stream was flushed
            stream.flush()
    with suppress(OSError, ValueError):
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), _SHOW_CURSOR)  # a live display hides it
    os._exit(code)


def _is_importing(frame: FrameType | None) -> bool:
    while frame:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
