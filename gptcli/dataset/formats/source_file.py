"""A source as a binary file object, for libraries that read files in any order."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from gptcli.dataset.sources import OnBytes, Source, opened


@contextmanager
def source_file(source: Source, on_bytes: OnBytes) -> Iterator[BinaryIO]:
    """The source as a seekable file. `on_bytes` gets its whole size in total, whatever is read of it."""
    with opened(source) as descriptor:
        raw = _Raw(descriptor, on_bytes)
        with io.BufferedReader(raw) as file:
            yield file
            on_bytes(raw.unreported)


class _Raw(io.RawIOBase):
    """Reads with `os.pread`, since readers of one open file must not share a position."""

    def __init__(self, descriptor: int, on_bytes: OnBytes) -> None:
        self._descriptor = descriptor
        self._on_bytes = on_bytes
        self._size = self.unreported = os.fstat(descriptor).st_size
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = os.pread(self._descriptor, len(buffer), self._place)
        count = len(data)
        buffer[:count] = data
        self._place += count
        new = min(count, self.unreported)  # parts may be read twice
        self.unreported -= new
        self._on_bytes(new)
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        if place < 0:
            raise ValueError("it is cut off")
        self._place = place
        return place

    def tell(self) -> int:
        return self._place
