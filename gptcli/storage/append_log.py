"""A file of lines that only grows."""

from __future__ import annotations

import os
from pathlib import Path

from gptcli.storage.disk import disk_errors, flush_directory


class AppendLog:
    """A log whose lines reach the operating system at once, and the disk with `flush`.

    Lines that the disk refuses are kept and written before the next one, so that a disk that is full for a while
    costs no line.
    """

    def __init__(self, path: Path, keep_bytes: int) -> None:
        """Open `path` and keep the whole lines in its first `keep_bytes` bytes; a folder there is renamed."""
        self.path = path
        self._unwritten = b""
        with disk_errors(path):
            if path.exists() and not path.is_file():
                os.rename(path, path.with_name(f"{path.name}.aside-{os.getpid()}"))
            self._file = open(path, "a+b" if keep_bytes else "ab", buffering=0)  # noqa: SIM115 - closed by close()
            self._file.seek(0)
            kept = self._file.read(keep_bytes) if keep_bytes else b""
            # Not to `keep_bytes`: `truncate` would fill a file that lost its end with zeros.
            whole = kept.rfind(b"\n") + 1
            self._file.truncate(whole)
            self._file.seek(0, os.SEEK_END)
            flush_directory(path.parent)  # its name may be new
        self._kept = kept[:whole]

    def take_kept(self) -> bytes:
        """The lines that were there when the log was opened, once: they are not held in memory after that."""
        kept, self._kept = self._kept, b""
        return kept

    def append(self, line: str) -> None:
        """Add a line. If this raises StorageError, the line is written with the next one."""
        self._unwritten += line.encode() + b"\n"
        self._write()

    def length(self) -> int:
        """The length in bytes; raises StorageError while a line is unwritten."""
        self._write()
        with disk_errors(self.path):
            return self._file.tell()

    def flush(self) -> None:
        """Flush what was written to the disk. Another thread may append lines meanwhile."""
        with disk_errors(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def _write(self) -> None:
        with disk_errors(self.path):
            while self._unwritten:
                self._unwritten = self._unwritten[self._file.write(self._unwritten) :]
