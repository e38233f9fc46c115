"""A lock on a folder: one process at a time writes to it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from gptcli.errors import StorageError
from gptcli.storage.disk import disk_errors, make_directories


class FolderLock:
    """An operating-system lock on a folder, released at the latest when the process ends."""

    def __init__(self, folder: Path) -> None:
        """Take the lock, and make the folder if needed; raises StorageError if another process holds it."""
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
        os.close(self._descriptor)
