"""Runs a native call in a thread, so that Ctrl-C need not wait for it to return.

Python runs a signal's handler in the main thread, between two bytecodes. A compiled library that works in that thread
delays it, for seconds where a text is long. So the library works in another thread, and the main thread waits for it,
which can be interrupted. A thread cannot be stopped: it ends with the process (see `__main__`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def run_interruptible(work: Callable[[], Result]) -> Result:
    """The result of `work()`, or its exception. An exception of a signal's handler comes through at once."""
    if threading.current_thread() is not threading.main_thread():
        return work()  # no signals here
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # a panic of the library is no Exception
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future.result()
