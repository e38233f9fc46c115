"""Folders that are long in the making: a process that is killed leaves its work, and the next one continues it.

.book.unfinished/        becomes `book` by one rename; locked by the process that works there
.book.unfinished.json    how far the work has come, replaced at once
"""

from __future__ import annotations

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
from gptcli.storage.disk import disk_errors, flush_directory, refuse_impossible_place
from gptcli.storage.lock import FolderLock

UNFINISHED_SUFFIX = ".unfinished"


class UnfinishedDirectory(NewDirectory):
    """A folder that `unfinished_directory` is making, perhaps with the work of an earlier process."""

    def state(self) -> bytes | None:
        """The state that was saved last; None if there is none."""
        state = _state_of(self.path)
        with disk_errors(state, "Reading"):
            return state.read_bytes() if state.is_file() else None

    def save_state(self, state: bytes) -> None:
        """Replace the state. The files that it describes must have been flushed to the disk."""
        with disk_errors(self.path):
            flush_directory(self.path)
        write_file(_state_of(self.path), state)

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
    refuse_impossible_place(final)
    unfinished = unfinished_of(final)
    try:
        lock = _locked(unfinished)
    except StorageError:  # another process, or a file system without locks
        with new_directory(final, manifest=None, replace=replace) as new:
            yield new
        return
    with lock:
        for name in (final.name, unfinished.name, _state_of(unfinished).name):
            remove_leftovers(final.parent, of=name)
        work = UnfinishedDirectory(unfinished)
        try:
            yield work
            put_in_place(unfinished, final, replace=replace)
        except BaseException as error:
            stays = isinstance(error, KeyboardInterrupt | SystemExit | MemoryError | StorageError)
            with suppress(StorageError):  # report the first error
                if not stays or work.state() is None:
                    _remove(unfinished)
                if replace:
                    remove_leftovers(final.parent, of=final.name)
            raise
        _remove(unfinished)


def unfinished_of(final: Path) -> Path:
    """The folder in which the work on `final` is kept."""
    named = final if final.name not in ("", "..") else final.resolve()
    return named.with_name(f".{named.name}{UNFINISHED_SUFFIX}")


def remove_unfinished(final: Path) -> None:
    """Delete the unfinished work on `final`, unless a process is at it."""
    unfinished = unfinished_of(final)
    with suppress(StorageError):
        for name in (unfinished.name, _state_of(unfinished).name):
            remove_leftovers(unfinished.parent, of=name)
        if unfinished.is_dir() and not unfinished.is_symlink():
            with FolderLock(unfinished):
                _remove(unfinished)
        else:
            _remove(unfinished)


def _state_of(unfinished: Path) -> Path:
    return unfinished.with_name(f"{unfinished.name}.json")


def _remove(unfinished: Path) -> None:
    with disk_errors(unfinished):
        if (state := _state_of(unfinished)).exists():  # nearly always there is none
            state.unlink(missing_ok=True)
        if unfinished.is_dir():
            flush_directory(unfinished.parent)
    remove_directory(unfinished)


def _locked(folder: Path) -> FolderLock:
    """The lock on a folder that is still in its place: another process may have finished and renamed it meanwhile."""
    lock = FolderLock(folder)
    while lock.moved():
        lock.release()
        lock = FolderLock(folder)
    return lock
