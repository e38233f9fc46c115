"""Signals in a training: the first one asks to save and stop, the second one ends the process at once.

Ending at once is safe, since everything on the disk appears complete or not at all.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from gptcli.signals import end_now, heeded_signals


class GracefulStop:
    """A context in which signals are remembered from `arm` on, instead of raised."""

    def __init__(self, on_first: Callable[[], None], *, copies_for: float = 0.0) -> None:
        """`on_first` is called when the first signal arrives, to tell the user that it was received.

        Signals in the `copies_for` seconds after it are copies of it: a launcher hands on what all processes have got.
        """
        self.signum = 0
        """The first signal received; 0 for none."""
        self._on_first = on_first
        self._copies_for = copies_for
        self._first = 0.0
        self._previous: dict[signal.Signals, object] = {}

    def arm(self) -> None:
        """Handle signals from now on."""
        self._previous = {signum: signal.signal(signum, self._handle) for signum in heeded_signals()}

    def requested(self) -> bool:
        """Whether a signal asked to stop."""
        return self.signum > 0

    def __enter__(self) -> GracefulStop:
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]

    def _handle(self, signum: int, _frame: FrameType | None) -> None:
        if self.signum and time.monotonic() - self._first < self._copies_for:
            return
        if self.signum:
            end_now(128 + signum)
        self.signum, self._first = signum, time.monotonic()
        # A closed terminal cannot be written to, nor can standard error while it is being written to.
        with suppress(OSError, RuntimeError):
            self._on_first()
