"""Encoding a long text in several processes.

Most of encoding is Python and numpy under Python's one lock, so that threads gain little. Each process runs `main`: it
reads a tokenizer and then texts from one pipe, writes their ids to another, and ends when the first is closed. So none
outlives the program, however that ends.

A message is a list of byte strings: how many, the length of each, as int64, and then their bytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from queue import SimpleQueue
from threading import Lock
from typing import IO

import numpy as np

from gptcli.machine import cores
from gptcli.tokenizer.bytelevel import ByteLevelTokenizer
from gptcli.tokenizer.tokenizer import Tokenizer

MIN_CORES = 4
"""Each process learns words by itself, so that two take as long as one (docs/log.md)."""
BYTES_EACH = 1 << 23
"""Text for which one more process pays: it takes some tenths of a second to start."""
MAX_PROCESSES = 8
"""Each holds a table of words, some 100 MB."""
BATCH_CHARACTERS = 1 << 20
"""Text that is sent at once."""

Encode = Callable[[Iterable[str]], Iterator[np.ndarray]]
"""The ids of each text by itself, in order."""


@contextmanager
def encoding(tokenizer: Tokenizer, text_bytes: int) -> Iterator[Encode]:
    """What encodes texts of `text_bytes` in all soonest: this process, or as many as there are cores and work for.

    The ids are those of `tokenizer.encode_texts`, whoever gives them.
    """
    count = min(cores() - 1, MAX_PROCESSES, text_bytes // BYTES_EACH)  # one core reads and writes
    pays = tokenizer.kind == "bpe" and tokenizer.cuttable  # a character is sooner looked up than sent
    if not pays or cores() < MIN_CORES or count < 2:
        yield tokenizer.encode_texts
        return
    document = tokenizer.to_json().encode()
    with ExitStack() as ending:
        processes = []
        with suppress(OSError):  # fewer than asked for, where the system gives no more
            for _ in range(count):
                processes.append(ending.enter_context(_Process(document)))
        if processes:
            pool = _Pool(tokenizer, processes)
            ending.callback(pool.close)
        yield pool.encode if processes else tokenizer.encode_texts


class _Pool:
    """Processes that wait for texts, each with a thread of ours that talks to it."""

    def __init__(self, tokenizer: Tokenizer, processes: list[_Process]) -> None:
        self._tokenizer, self._ahead = tokenizer, 2 * len(processes)
        self._idle: SimpleQueue[_Process | None] = SimpleQueue()
        """None at its end: all have ended."""
        self._alive, self._lock = len(processes), Lock()
        for process in processes:
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(len(processes))

    def encode(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """The ids of each text, uint32, in order."""
        begun: deque[tuple[list[str], Future[list[np.ndarray] | None]]] = deque()
        for batch in _batches(texts):
            begun.append((batch, self._threads.submit(self._ask, batch)))
            if len(begun) > self._ahead:
                yield from self._ids(*begun.popleft())
        while begun:
            yield from self._ids(*begun.popleft())

    def close(self) -> None:
        """Begin nothing any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, texts: list[str]) -> list[np.ndarray] | None:
        """The answer of a process that is free; None if all have ended."""
        while process := self._idle.get():
            try:
                ids = process.encode(texts)
            except (OSError, EOFError, ValueError):  # it has ended, or its pipes were closed: another one may do it
                with self._lock:
                    self._alive -= 1
                    if not self._alive:
                        self._idle.put(None)
            else:
                self._idle.put(process)
                return ids
        self._idle.put(None)
        return None

    def _ids(self, texts: list[str], answer: Future[list[np.ndarray] | None]) -> Iterable[np.ndarray]:
        """An answer; or if the process could give none, ours, or the error that tells why there is none."""
        ids = answer.result()
        return self._tokenizer.encode_texts(texts) if ids is None else ids


class _Process:
    """One process, from this side of its pipes; leaving it ends it, in the middle of a text too."""

    def __init__(self, document: bytes) -> None:
        self._first = [document]  # sent with the first text: it cannot read yet
        ours, theirs = os.pipe()  # of its own, since what a Python is set up with may write to standard output
        code = f"import sys; sys.path[:] = {sys.path}; from gptcli.tokenizer.processes import main; main({theirs})"
        self._ids = os.fdopen(ours, "rb")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],  # -P: the path of modules is ours alone
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs],
                env={**os.environ, "RAYON_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is for us
            )
        except OSError:
            self._ids.close()
            raise
        finally:
            os.close(theirs)
        assert self._process.stdin
        self._texts = self._process.stdin

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        """The ids of each text, uint32; raises OSError or EOFError if the process has ended."""
        while self._first:
            _send(self._texts, [self._first.pop()])
        _send(self._texts, [text.encode() for text in texts])
        return [np.frombuffer(ids, dtype=np.uint32) for ids in _receive(self._ids)]

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._texts, self._ids):  # a thread that is at one gets an error, and leaves it
            with suppress(OSError):
                pipe.close()


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in a row, some together."""
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _send(pipe: IO[bytes], message: list[bytes]) -> None:
    pipe.write(np.array([len(message), *map(len, message)], dtype=np.int64).tobytes())
    pipe.writelines(message)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> list[bytes]:
    """The next message; raises EOFError if the other side is gone."""
    (count,) = _numbers(pipe, 1)
    return [_exactly(pipe, length) for length in _numbers(pipe, count)]


def _numbers(pipe: IO[bytes], count: int) -> list[int]:
    numbers: list[int] = np.frombuffer(_exactly(pipe, 8 * count), dtype=np.int64).tolist()
    return numbers


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    content = pipe.read(size)
    if len(content) < size:
        raise EOFError
    return content


def main(answers: int) -> None:
    """Encode what comes in until no more does; the ids go to the file with the number `answers`."""
    texts = sys.stdin.buffer
    with os.fdopen(answers, "wb") as ids, suppress(EOFError):
        (document,) = _receive(texts)
        tokenizer = ByteLevelTokenizer(json.loads(document))
        while True:
            batch = [text.decode() for text in _receive(texts)]
            _send(ids, [encoded.tobytes() for encoded in tokenizer.encode_texts(batch)])
