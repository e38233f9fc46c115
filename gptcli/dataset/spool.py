"""The text of small documents in a temporary file, so that a folder of many files is opened and converted once.

Training a vocabulary and encoding read them from there, one after another, instead of from a hundred thousand files.
They come in the same pieces as from their reader.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from typing import BinaryIO

MAX_DOCUMENT_BYTES = 1 << 17
_MAX_BYTES = 1 << 30
"""Of the file: what does not fit is read from its source again."""
_BLOCK_BYTES = 1 << 20
_SEPARATOR = b"\xff"
"""Between the pieces of a document: no byte of UTF-8."""


class Spool:
    """The texts of documents, in order, in a file without a name."""

    def __init__(self, file: BinaryIO) -> None:
        self._descriptor = file.fileno()
        self._waiting: list[bytes] = []
        self._written = self._size = 0
        self._starts = array("q", [0])
        """Where each document begins, and the end of the last. One that is not here is empty."""
        self._is_full = False

    def add(self, pieces: Sequence[bytes]) -> None:
        """Add the pieces, in UTF-8, of the next document; none for one that is not to be kept."""
        if self._is_full:
            return
        data = _SEPARATOR.join(pieces)
        self._waiting.append(data)
        self._size += len(data)
        self._starts.append(self._size)
        if self._size - self._written >= _BLOCK_BYTES:
            self._write()
        self._is_full = self._is_full or self._size >= _MAX_BYTES

    def cut(self, count: int) -> None:
        """Forget all but the first `count` documents."""
        if count + 1 < len(self._starts):
            self._write()
            del self._starts[count + 1 :]
            self._size = self._starts[-1]
            self._written = min(self._written, self._size)

    def read(self, number: int) -> list[str]:
        """The pieces of a document; none if it is not here."""
        if number + 1 >= len(self._starts):
            return []
        if self._waiting:
            self._write()
        start, stop = self._starts[number : number + 2]
        data = os.pread(self._descriptor, stop - start, start) if stop <= self._written else b""
        return [piece.decode() for piece in data.split(_SEPARATOR)] if data else []

    def _write(self) -> None:
        """Write what waits. A disk that is full ends it: the rest is read from the sources."""
        data, self._waiting = b"".join(self._waiting), []
        try:
            while data:
                count = os.pwrite(self._descriptor, data, self._written)
                self._written += count
                data = data[count:]
        except OSError:
            self._is_full = True
