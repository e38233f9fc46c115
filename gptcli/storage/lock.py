"""Locks on folders: one process at a time writes to one."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gptcli.errors import StorageError
from gptcli.storage.disk import disk_errors, make_directories


@contextmanager
def alone_in(folder: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Lock an existing folder, after waiting for the process that has locked it. The lock ends with the process.

    `on_wait` is called before the waiting. A file system without locks lets everybody in.
    """
    with disk_errors(folder):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class FolderLock:
    """An operating-system lock on a folder, released at the latest when the process ends."""

    def __init__(self, folder: Path) -> None:
        """Take the lock, and make the folder if needed; raises StorageError if another process holds it."""
        self._folder = folder
        with disk_errors(folder):
            make_directories(folder)
            self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with disk_errors(folder):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except StorageError as error:
            os.close(self._descriptor)
            if not isinstance(error.__cause__, BlockingIOError):
                raise
            raise StorageError(
                f"Another process is writing to '{folder}'.", "Wait for it to end, or choose another place with `out`."
            ) from None

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)

    def moved(self) -> bool:
        """Whether the locked folder is no longer at the path where it was locked."""
        try:
            return not os.path.samestat(os.stat(self._folder), os.fstat(self._descriptor))
        except OSError:
            return True

    def whereabouts(self) -> Path | None:
        """The current path of the locked folder; None if it was deleted or cannot be found."""
        try:
            if sys.platform == "darwin":
                found = Path(os.fsdecode(fcntl.fcntl(self._descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")))
            else:
                found = Path(os.readlink(f"/proc/self/fd/{self._descriptor}"))
            return found if os.path.samestat(os.stat(found), os.fstat(self._descriptor)) else None
        except OSError:
            return None
