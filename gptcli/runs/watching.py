"""A thread that notices what a rank's main thread cannot while it waits for others: signals, and the launcher's end."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

from gptcli.errors import LostRank
from gptcli.signals import STOP_SIGNALS

INTERVAL = 0.2
"""Seconds between two looks."""
GRACE = 1.0
"""Seconds in which a signal to another rank may also come to this one, as from a terminal or a launcher."""


class Watch:
    """A context in which stop signals of this process are passed on, and those of other ranks come in.

    The process ends at once when its launcher is gone, as by SIGKILL: nobody else would end it. What is on the disk is
    always complete.
    """

    def __init__(self, *, pass_on: Callable[[int], None], others: Callable[[], int]) -> None:
        """`pass_on` gets each stop signal of this process; `others` returns that of another rank, 0 for none."""
        self._pass_on, self._others = pass_on, others
        self._parent = os.getppid()
        self._received = self._done = False
        self._read, self._write = os.pipe()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._previous = -1

    def __enter__(self) -> Watch:
        os.set_blocking(self._write, False)
        if threading.current_thread() is threading.main_thread():  # Python writes each signal there as it arrives
            self._previous = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done = True
        self._thread.join()
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(self._previous)
        os.close(self._read)
        os.close(self._write)

    def _run(self) -> None:
        waited = 0.0
        while not self._done:
            ready, _, _ = select.select([self._read], [], [], INTERVAL)
            for signum in os.read(self._read, 64) if ready else b"":
                if signum in STOP_SIGNALS:
                    self._received = True
                    self._pass_on(signum)
            if os.getppid() != self._parent:
                os._exit(LostRank.exit_code)
            with suppress(RuntimeError):  # the store is gone: calls to other ranks fail soon, and say so
                if not self._received and (signum := self._others()):
                    waited += INTERVAL
                    if waited > GRACE:
                        self._received = True
                        os.kill(os.getpid(), signum)
