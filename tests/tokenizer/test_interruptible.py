"""Signals are handled while a compiled library is at work."""

from __future__ import annotations

import hashlib
import signal
import threading

import pytest

from gptcli.errors import CorpusError
from gptcli.tokenizer.interruptible import run_interruptible


class Heard(Exception):  # noqa: N818 - raised by the handler
    pass


def slow() -> bytes:
    """A second or more in one call of a compiled library."""
    return hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 3_000_000)


def raise_heard(signum: int, frame: object) -> None:
    raise Heard


def test_a_signal_comes_through_before_the_library_returns() -> None:
    before = threading.active_count()
    previous = signal.signal(signal.SIGALRM, raise_heard)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(Heard):
            run_interruptible(slow)
        assert threading.active_count() == before + 1, "the library is still at work"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_results_and_errors_come_through() -> None:
    def fail() -> None:
        raise CorpusError("No.")

    assert run_interruptible(lambda: 7) == 7
    with pytest.raises(CorpusError, match="No"):
        run_interruptible(fail)


def test_another_thread_does_the_work_itself() -> None:
    """Only the main thread handles signals."""
    threads: list[threading.Thread] = []
    other = threading.Thread(target=lambda: run_interruptible(lambda: threads.append(threading.current_thread())))
    other.start()
    other.join()
    assert threads == [other]
