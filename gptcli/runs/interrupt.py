"""Ctrl-C, SIGTERM and a closed terminal in training: the first asks to save and stop, the second ends it at once.

Ending at once harms nothing, since everything on the disk appears complete or not at all.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from torch import Tensor

from gptcli.signals import heeded_signals


@contextmanager
def graceful_stop(on_first: Callable[[], None]) -> Iterator[Callable[[], int]]:
    """While this is open, signals are counted instead of raised; yields a function that gives the signal, or 0.

    `on_first` is called when the first one arrives, to tell the user that it was heard.
    """
    received: list[int] = []

    def handle(signum: int, _frame: FrameType | None) -> None:
        if received:
            os._exit(128 + signum)
        received.append(signum)
        # A terminal that was closed cannot be told; nor is standard error written to twice at a time.
        with suppress(OSError, RuntimeError):
            on_first()

    previous = {signum: signal.signal(signum, handle) for signum in heeded_signals()}
    try:
        yield lambda: received[0] if received else 0
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


class UpdateStopped(Exception):  # noqa: N818 - being told to stop is not an error
    """A signal came in the middle of an update, of which nothing is kept."""


def unless_stopped(backward: Callable[[Tensor], None], stop_signal: Callable[[], int]) -> Callable[[Tensor], None]:
    """`backward` for the micro-batches of an update; once a signal came, all but the first raise UpdateStopped instead.

    A large batch in small pieces may take minutes.
    """
    begun = False

    def backward_or_stop(loss: Tensor) -> None:
        nonlocal begun
        if begun and stop_signal():
            raise UpdateStopped
        begun = True
        backward(loss)

    return backward_or_stop
