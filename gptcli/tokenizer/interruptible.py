"""Runs a native call in a thread, so that Ctrl-C need not wait for it to return.

A signal's handler runs in the main thread, between two steps of Python. While a compiled library is at work in that
thread there are none, for seconds where a vocabulary is learned. So the library works in another thread, and the main
one waits in a way that can be interrupted. A thread cannot be stopped: it ends with the process (see `__main__`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def run_interruptible(work: Callable[[], Result]) -> Result:
    """What `work()` returns or raises. Where a signal's handler raises, that comes through at once."""
    if threading.current_thread() is not threading.main_thread():
        return work()  # no signals here
    return begin(work)()


def begin(work: Callable[[], Result]) -> Callable[[], Result]:
    """Begin `work()` beside what comes next; what this returns waits for its end, and returns or raises what it did."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def keep() -> None:
        try:
            results.append(work())
        except BaseException as error:  # to be raised where it is waited for
            errors.append(error)

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()

    def wait() -> Result:
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    return wait
