"""Folders that are long in the making: a process that is killed leaves its work, and the next one continues it.

.book.unfinished/        locked by the process that works there
    state.json           how far the work has come, replaced at once
    folder/              becomes `book` by one rename
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gptcli.errors import StorageError
from gptcli.storage.atomic import (
    NewDirectory,
    new_directory,
    put_in_place,
    remove_directory,
    remove_leftovers,
    write_file,
)
from gptcli.storage.disk import disk_errors, flush_directory, refuse_working_folder
from gptcli.storage.lock import FolderLock

UNFINISHED_SUFFIX = ".unfinished"
UNFINISHED_FOLDER = "folder"
_STATE = "state.json"


class UnfinishedDirectory(NewDirectory):
    """A folder that `unfinished_directory` is making, perhaps with the work of an earlier process."""

    def __init__(self, home: Path) -> None:
        super().__init__(home / UNFINISHED_FOLDER)
        self._state = home / _STATE

    def state(self) -> bytes | None:
        """The state that was saved last; None if there is none."""
        with disk_errors(self._state, "Reading"):
            return self._state.read_bytes() if self._state.is_file() else None

    def save_state(self, state: bytes) -> None:
        """Replace the state. The files that it describes must have been flushed to the disk."""
        with disk_errors(self.path):
            flush_directory(self.path)
        write_file(self._state, state)

    def keep_only(self, names: set[str]) -> None:
        """Delete all files of the folder but these."""
        with disk_errors(self.path):
            for path in self.path.iterdir():
                if path.name not in names:
                    path.unlink()


@contextmanager
def unfinished_directory(final: Path, *, replace: bool = False) -> Iterator[NewDirectory]:
    """Make the folder `final` so that it appears complete or not at all, and an interruption costs little.

    The body gets an `UnfinishedDirectory`, which stays after a signal, a lack of memory or an error of the disk, once a
    state was saved. While another process works there, it gets a new directory, which does not stay. Otherwise this is
    `new_directory` without a manifest.
    """
    refuse_working_folder(final)
    home = unfinished_home(final)
    try:
        lock = _locked(home)
    except StorageError:  # another process, or a file system without locks
        with new_directory(final, manifest=None, replace=replace) as new:
            yield new
        return
    with lock:
        unfinished = UnfinishedDirectory(home)
        with disk_errors(final):
            for name in (final.name, home.name):
                remove_leftovers(final.parent, of=name)
            remove_leftovers(home)
            unfinished.path.mkdir(exist_ok=True)
        try:
            yield unfinished
            put_in_place(unfinished.path, final, replace=replace)
        except BaseException as error:
            stays = isinstance(error, KeyboardInterrupt | SystemExit | MemoryError | StorageError)
            if not stays or unfinished.state() is None:
                shutil.rmtree(home, ignore_errors=True)
            if replace:
                with suppress(StorageError):  # report the first error
                    remove_leftovers(final.parent, of=final.name)
            raise
        remove_directory(home)


def unfinished_home(final: Path) -> Path:
    """The folder in which the work on `final` is kept."""
    named = final if final.name not in ("", "..") else final.resolve()
    return named.with_name(f".{named.name}{UNFINISHED_SUFFIX}")


def unfinished_folder(final: Path) -> Path:
    """The folder that is to become `final`."""
    return unfinished_home(final) / UNFINISHED_FOLDER


def remove_unfinished(home: Path) -> None:
    """Delete unfinished work, unless a process is at it."""
    with suppress(StorageError):
        remove_leftovers(home.parent, of=home.name)
        if home.is_dir() and not home.is_symlink():
            with FolderLock(home):
                remove_directory(home)


def _locked(home: Path) -> FolderLock:
    """The lock on a folder that is still in its place: another process may have finished and removed it meanwhile."""
    lock = FolderLock(home)
    while lock.moved():
        lock.release()
        lock = FolderLock(home)
    return lock
