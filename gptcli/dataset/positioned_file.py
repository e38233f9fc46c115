"""A file object over an open file, with a position of its own."""

from __future__ import annotations

import io
import os
from collections.abc import Callable


class PositionedFile(io.RawIOBase):
    """A file object over a descriptor, with a position of its own: several can read one descriptor.

    `on_bytes` is called with the bytes read until they add up to the size of the file: parts may be read twice.
    """

    def __init__(self, descriptor: int, on_bytes: Callable[[int], None] = lambda _count: None) -> None:
        self._descriptor, self._position, self._on_bytes = descriptor, 0, on_bytes
        self._size = self._unreported = os.fstat(descriptor).st_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = os.pread(self._descriptor, len(buffer), self._position)
        count = len(data)
        buffer[:count] = data
        self._position += count
        self._report(count)
        return count

    def report_rest(self) -> None:
        """Report the bytes that were not read."""
        self._report(self._unreported)

    def _report(self, count: int) -> None:
        new = min(count, self._unreported)
        self._unreported -= new
        self._on_bytes(new)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if position < 0:
            raise ValueError("it is cut off")
        self._position = position
        return position

    def tell(self) -> int:
        return self._position
