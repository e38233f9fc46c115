"""Encoding a long text in several processes.

Most of encoding is Python and numpy under Python's one lock, so threads gain little. A process that dies costs nothing
but time: this process then encodes what is left. No process outlives the program, however the program ends.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import TypeVar

import numpy as np

from gptcli.machine import cores
from gptcli.signals import STOP_SIGNALS
from gptcli.tokenizer.bytelevel import Tokenizer

MIN_CORES = 4
"""Each process encodes distinct words by itself, so two processes take as long as one (docs/log.md)."""
BYTES_EACH = 1 << 23
"""Text for each process: starting one takes a few tenths of a second."""
MAX_PROCESSES = 8
"""Each process has a table of words of some 100 MB."""
_BATCH_CHARACTERS, _BATCH_TEXTS = 1 << 20, 1024
"""Texts that are sent to a process together, at most: eight pieces of a long one, or many short documents."""
_ENVIRONMENT = {"RAYON_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
"""For the processes: `tokenizers` starts no threads, and no file of the working directory is imported."""

Encode = Callable[[Iterable[str]], Iterator[np.ndarray]]
"""The ids of each text by itself, in order."""
Encoding = Callable[[Tokenizer, int], AbstractContextManager[Encode]]
"""A way to encode texts with a tokenizer, given their size in bytes, such as `encoding`."""
Begun = TypeVar("Begun")

_tokenizer: Tokenizer
"""In a process of the pool: the tokenizer that it was started with."""


@contextmanager
def encoding(tokenizer: Tokenizer, text_bytes: int) -> Iterator[Encode]:
    """The fastest way to encode texts of `text_bytes` in all: in this process (`tokenizer.encode_texts`) or several."""
    count = min(cores() - 1, MAX_PROCESSES, text_bytes // BYTES_EACH)  # one core reads and writes
    pays = tokenizer.kind == "bpe" and tokenizer.cuttable  # looking up characters is faster than sending them
    pool = _new_pool(count, tokenizer) if pays and cores() >= MIN_CORES and count > 1 else None
    if not pool:
        yield tokenizer.encode_texts
        return
    try:
        yield partial(in_batches, 2 * count, partial(_submitted, pool), partial(_ids, tokenizer))
    finally:
        # After an interruption this waits for the batches at work, less than a second: the pool would wait for ever for
        # the rest of a result whose process is killed while it sends it.
        pool.shutdown(cancel_futures=True)


def _new_pool(count: int, tokenizer: Tokenizer) -> ProcessPoolExecutor | None:
    """A pool that starts processes when it gets work; None where the system has no semaphores for one."""
    try:
        with _starting():
            return ProcessPoolExecutor(count, _Context(), _begin, (tokenizer.to_json(),))
    except (OSError, NotImplementedError):
        return None


def in_batches(
    ahead: int,
    begin: Callable[[list[str]], Begun],
    ids_of: Callable[[list[str], Begun], Iterable[np.ndarray]],
    texts: Iterable[str],
) -> Iterator[np.ndarray]:
    """The ids of each text, in order. `begin` submits a batch; at most `ahead` are submitted and not yet yielded."""
    begun: deque[tuple[list[str], Begun]] = deque()
    remaining = iter(texts)
    while batch := _next_batch(remaining):
        begun.append((batch, begin(batch)))
        if len(begun) > ahead:
            yield from ids_of(*begun.popleft())
    while begun:
        yield from ids_of(*begun.popleft())


def _next_batch(texts: Iterator[str]) -> list[str]:
    """The next texts that are sent together; none at the end."""
    batch: list[str] = []
    size = 0
    while size < _BATCH_CHARACTERS and len(batch) < _BATCH_TEXTS and (text := next(texts, None)) is not None:
        batch.append(text)
        size += len(text)
    return batch


def _submitted(pool: ProcessPoolExecutor, batch: list[str]) -> Future[list[np.ndarray]] | None:
    try:
        return pool.submit(_encode_batch, batch)
    except (BrokenProcessPool, OSError):  # a process died, or the system starts no more
        return None


def _ids(tokenizer: Tokenizer, batch: list[str], ids: Future[list[np.ndarray]] | None) -> Iterable[np.ndarray]:
    """The ids from a process, or from this process if that one failed."""
    try:
        return ids.result() if ids else tokenizer.encode_texts(batch)
    except (BrokenProcessPool, MemoryError):
        return tokenizer.encode_texts(batch)


class _Process(SpawnProcess):
    """A process of the pool."""

    def start(self) -> None:
        with _starting():
            super().start()


class _Context(SpawnContext):
    Process = _Process


@contextmanager
def _starting() -> Iterator[None]:
    """While processes start: the environment that they inherit, blocked signals, and an empty `__main__` module.

    multiprocessing imports `__main__` in each process, which would run a script without a main guard once more. A
    signal is handled after the start: a process that is interrupted in its first moments prints a traceback.
    """
    main, environment = sys.modules["__main__"], dict(os.environ)
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ.update(_ENVIRONMENT)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        for name in _ENVIRONMENT:
            del os.environ[name]
        os.environ.update(environment)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _begin(document: str) -> None:
    """Prepare a new process of the pool."""
    global _tokenizer
    signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGINT})  # Ctrl-C is for the program, which ends the processes
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _tokenizer = Tokenizer(json.loads(document))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)


def _encode_batch(texts: list[str]) -> list[np.ndarray]:
    return list(_tokenizer.encode_texts(texts))
