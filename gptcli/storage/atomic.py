"""Folders and files that appear complete or not at all."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from gptcli.errors import StorageError
from gptcli.storage.disk import (
    disk_errors,
    flush,
    flush_directory,
    is_occupied,
    make_directories,
    refuse_impossible_place,
    write_flushed,
)
from gptcli.storage.manifest import MANIFEST_FILE, FileEntry, fingerprints, read_back, to_json

TEMPORARY_SUFFIX = ".partial"
"""Ends the name of a file or folder while it is written or deleted."""
REPLACED_SUFFIX = ".replaced"
"""Ends the name of a folder while another one takes its place."""


class NewDirectory:
    """A folder that `new_directory` is making."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[str, FileEntry] = {}
        """Manifest entries of the files that were read back, by name."""

    def write(self, name: str, content: bytes | Iterable[bytes | memoryview]) -> None:
        """Add the file `name` and flush it to the disk."""
        path = self.path / name
        with disk_errors(path), open(path, "xb") as file:
            write_flushed(file, content)

    def write_verified(self, name: str, content: Iterable[bytes | memoryview]) -> None:
        """Add the file `name`, flush it to the disk and read it back; `content` is iterated twice.

        Raises StorageError if it reads back differently.
        """
        self.write(name, content)
        self.entries[name] = read_back(self.path / name, content)

    def make_folder(self, name: str) -> None:
        """Add an empty folder."""
        with disk_errors(self.path / name):
            (self.path / name).mkdir()

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """A new binary file, to write and seek; flushed to the disk at the end."""
        path = self.path / name
        with disk_errors(path), open(path, "xb") as file:
            yield file
            flush(file)

    @contextmanager
    def reopen(self, name: str, size: int) -> Iterator[BinaryIO]:
        """A file that is there, cut to `size` bytes, to write after them; flushed to the disk at the end."""
        path = self.path / name
        with disk_errors(path), open(path, "r+b") as file:
            file.truncate(size)
            file.seek(size)
            yield file
            flush(file)


@contextmanager
def new_directory(
    final: Path, *, manifest: str | None = MANIFEST_FILE, replace: bool = False
) -> Iterator[NewDirectory]:
    """Make the folder `final` so that it appears complete or not at all.

    The body adds files. Then the manifest is written (unless None), and the folder is renamed into place. Raises
    StorageError if anything except an empty folder is at `final`, unless `replace` is set. Replacing takes two
    renames; if the process is killed between them, the next `remove_leftovers` puts the old folder back.
    """
    refuse_impossible_place(final)
    with disk_errors(final):
        make_directories(final.parent)
    remove_leftovers(final.parent, of=final.name)
    if is_occupied(final) and not replace:
        raise StorageError(f"'{final}' is already there.", "Choose another place with `out`.")
    temporary = _hidden(final, TEMPORARY_SUFFIX)
    with disk_errors(final):
        temporary.mkdir()
    try:
        new = NewDirectory(temporary)
        yield new
        if manifest:
            NewDirectory(temporary).write(manifest, to_json({"format": 1, "files": _entries(new)}))
        put_in_place(temporary, final, replace=replace)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        if replace:
            with suppress(StorageError):  # report the first error
                remove_leftovers(final.parent, of=final.name)
        raise


def _entries(new: NewDirectory) -> dict[str, FileEntry]:
    """The manifest entries of all files by name; those that were not read back yet are read now."""
    unread = [path.name for path in new.path.iterdir() if path.name not in new.entries]
    return dict(sorted((new.entries | fingerprints(new.path, unread)).items()))


def put_in_place(new: Path, final: Path, *, replace: bool) -> None:
    """Rename the finished folder `new` to `final`. With `replace`, a folder that is there is deleted."""
    with disk_errors(final):
        flush_directory(new)
        if replace and final.exists():
            _replace_directory(final, new)
        else:
            os.rename(new, final)
            flush_directory(final.parent)


def _replace_directory(final: Path, new: Path) -> None:
    replaced, doomed = _hidden(final, REPLACED_SUFFIX), _hidden(final, TEMPORARY_SUFFIX)
    os.rename(final, replaced)
    os.rename(new, final)
    flush_directory(final.parent)  # else a power failure may undo the second renaming alone
    os.rename(replaced, doomed)  # `remove_leftovers` deletes this name: from here on the old folder may be incomplete
    flush_directory(final.parent)
    shutil.rmtree(doomed)


def write_file(path: Path, content: bytes | Iterable[bytes | memoryview], option: str = "`out`") -> None:
    """Write or replace one file so that readers see the old content or the new, never a part.

    `option` is the setting of another place, for hints.
    """
    temporary = _hidden(path, TEMPORARY_SUFFIX)
    try:
        with disk_errors(path, option=option):
            with open(temporary, "wb") as file:
                write_flushed(file, content)
            os.replace(temporary, path)
            flush_directory(path.parent)
    except BaseException:
        with suppress(OSError):  # report the first error
            temporary.unlink(missing_ok=True)
        raise


def adopt_file(temporary: Path, final: Path, option: str = "`out`") -> None:
    """Give a file that was written over a longer time its final name, after flushing it to the disk.

    `option` is the setting of another place, for hints.
    """
    with disk_errors(final, option=option):
        with open(temporary, "rb+") as file:
            flush(file)
        os.replace(temporary, final)
        flush_directory(final.parent)


def remove_directory(path: Path) -> None:
    """Delete a folder so that it never looks valid when half deleted: it is renamed first. Ignores links and files."""
    if path.is_symlink() or not path.is_dir():
        return
    doomed = _hidden(path, TEMPORARY_SUFFIX)
    with disk_errors(path):
        os.rename(path, doomed)
        flush_directory(path.parent)  # else a power failure may undo the renaming, but not all of the deletions
        shutil.rmtree(doomed)


def remove_leftovers(folder: Path, of: str | None = None) -> None:
    """Delete what killed processes left half-written in `folder`, and put back what they were about to replace.

    Files of a running process stay. `of` is the final name of the files or folders in question; None: all. Several
    processes may do this at the same time.
    """
    name = re.escape(of) if of is not None else ".+"
    ours = re.compile(rf"\.({name})-([0-9]+)({re.escape(TEMPORARY_SUFFIX)}|{re.escape(REPLACED_SUFFIX)})")
    with disk_errors(folder):
        for path in list(folder.iterdir()) if folder.is_dir() else ():
            found = ours.fullmatch(path.name)
            if not found or _is_another_process(int(found[2])):
                continue
            final = folder / found[1]
            with suppress(FileNotFoundError):  # another process was faster
                if found[3] == REPLACED_SUFFIX and not is_occupied(final):
                    os.rename(path, final)
                    flush_directory(folder)
                elif path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                    if path.exists():
                        shutil.rmtree(path)  # raises the error
                else:
                    path.unlink()


def _hidden(final: Path, suffix: str) -> Path:
    """The temporary name that this process uses beside `final`."""
    return final.with_name(f".{final.name}-{os.getpid()}{suffix}")


def _is_another_process(number: int) -> bool:
    """Whether another process with this number is running."""
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # a process of another user
        return True
    return number != os.getpid()
