"""The only code that writes into run and dataset folders.

Three promises hold for everything that is written here:

- A folder (`new_directory`) or file (`write_file`) appears complete or not at all: it is written under a temporary
  name, flushed to the disk, and renamed; then the parent folder is flushed too.
- Nothing valid is overwritten in a folder that was made this way.
- A log (`AppendLog`) only grows, and is cut only on request, to a length that a manifest named.

A manifest is a JSON file that names each file of a folder with its size and sha256; `mismatch` tells how a folder
differs from it. `FolderLock` keeps other processes from writing meanwhile. Problems of the disk become `StorageError`.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from gptcli.errors import StorageError, reason_of

TEMPORARY_SUFFIX = ".partial"
"""Of what is being written, or deleted."""
REPLACED_SUFFIX = ".replaced"
"""Of a whole folder, for the moment until another one stands in its place."""
MANIFEST_FILE = "manifest.json"


@contextmanager
def disk_errors(path: Path, doing: Literal["Writing", "Reading"] = "Writing", option: str = "`out`") -> Iterator[None]:
    """Turn an OSError about `path` into a StorageError that a person can act on. `option` chooses another place."""
    full = f"Free some space, or choose another place with {option}, and run the same command again."
    hints = {
        **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), full),
        errno.EROFS: f"Choose a place that can be written to with {option}.",
        **dict.fromkeys((errno.EACCES, errno.EPERM), f"Check the permissions, or choose another place with {option}."),
    }
    try:
        yield
    except OSError as error:
        hint = hints.get(error.errno or 0, "")
        raise StorageError(f"{doing} '{path}' failed: {reason_of(error)}.", hint) from error


class NewDirectory:
    """A folder in the making: files are added with `write` or `open`; see `new_directory`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, content: bytes | Iterable[bytes | memoryview]) -> None:
        """Add the file `name` and flush it to the disk."""
        with self.open(name) as file:
            _write(file, content)

    def make_folder(self, name: str) -> None:
        """Add an empty folder."""
        with disk_errors(self.path / name):
            (self.path / name).mkdir()

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """A new binary file that can be written and seeked; flushed to the disk at the end."""
        path = self.path / name
        with disk_errors(path), open(path, "xb") as file:
            yield file
            _flush(file)


@contextmanager
def new_directory(
    final: Path, *, manifest: str | None = MANIFEST_FILE, replace: bool = False
) -> Iterator[NewDirectory]:
    """Make the folder `final` so that it appears complete or not at all.

    The body adds files; at its end the manifest (unless None) is written last, and the folder is renamed into place.
    Where something but an empty folder stands at `final` this raises StorageError, except with `replace`, which lets go
    of it once the new one is there. Two renamings are needed for that: who is killed between them finds the old folder
    in its place again after the next `remove_leftovers`.
    """
    refuse_working_folder(final)
    with disk_errors(final):
        _make_directories(final.parent)
    remove_leftovers(final.parent, of=final.name)
    if is_occupied(final) and not replace:
        raise StorageError(f"'{final}' is already there.", "Choose another place with `out`.")
    temporary = _hidden(final, TEMPORARY_SUFFIX)
    with disk_errors(final):
        temporary.mkdir()
    try:
        yield NewDirectory(temporary)
        with disk_errors(final):
            if manifest:
                NewDirectory(temporary).write(manifest, to_json({"format": 1, "files": fingerprints(temporary)}))
            _flush_directory(temporary)
            if replace and final.exists():
                _replace_directory(final, temporary)
            else:
                os.rename(temporary, final)
                _flush_directory(final.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        if replace:
            with suppress(StorageError):  # what went wrong first is what is told
                remove_leftovers(final.parent, of=final.name)
        raise


def _replace_directory(final: Path, new: Path) -> None:
    """Put `new` in the place of `final`."""
    replaced = _hidden(final, REPLACED_SUFFIX)
    os.rename(final, replaced)
    os.rename(new, final)
    _flush_directory(final.parent)  # else a power failure may undo the second renaming alone
    os.rename(replaced, new)  # a name under which nothing is put back: from here on the old folder is no longer whole
    _flush_directory(final.parent)
    shutil.rmtree(new)


def write_file(path: Path, content: bytes | Iterable[bytes | memoryview]) -> None:
    """Write or replace one file so that a reader sees the old content or the new, never a part."""
    temporary = _hidden(path, TEMPORARY_SUFFIX)
    try:
        with disk_errors(path):
            with open(temporary, "wb") as file:
                _write(file, content)
                _flush(file)
            os.replace(temporary, path)
            _flush_directory(path.parent)
    except BaseException:
        with suppress(OSError):  # what went wrong first is what is told
            temporary.unlink(missing_ok=True)
        raise


def remove_directory(path: Path) -> None:
    """Delete a folder that this module made: renamed first, so that it never looks valid while it goes."""
    if path.is_symlink() or not path.is_dir():
        return
    doomed = _hidden(path, TEMPORARY_SUFFIX)
    with disk_errors(path):
        os.rename(path, doomed)
        _flush_directory(path.parent)  # else a power failure may undo the renaming, but not all of the deletions
        shutil.rmtree(doomed)


def remove_leftovers(folder: Path, of: str | None = None) -> None:
    """Delete what killed processes left half-written in `folder`, and put back what they were about to replace.

    What a living process is writing stays. `of` is the final name of what they were writing; None: anything.
    """
    name = re.escape(of) if of is not None else ".+"
    ours = re.compile(rf"\.({name})-([0-9]+)({re.escape(TEMPORARY_SUFFIX)}|{re.escape(REPLACED_SUFFIX)})")
    with disk_errors(folder):
        for path in list(folder.iterdir()) if folder.is_dir() else ():
            found = ours.fullmatch(path.name)
            if not found or _is_another_process(int(found[2])):
                continue
            final = folder / found[1]
            if found[3] == REPLACED_SUFFIX and not is_occupied(final):
                os.rename(path, final)
                _flush_directory(folder)
            elif path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def refuse_working_folder(final: Path) -> None:
    """Raise StorageError if `final` is the folder that the user is in: a new one would leave the shell nowhere."""
    with disk_errors(final, "Reading"):
        is_here = final.resolve() == Path.cwd()
    if is_here:
        hint = "Name a folder inside or beside it with `out`."
        raise StorageError(f"'{final}' is the folder that you are in, where no new one can be put.", hint)


def is_occupied(path: Path) -> bool:
    """Whether anything but an empty folder stands at `path`; raises StorageError if that cannot be seen."""
    with disk_errors(path, "Reading"):
        return path.exists() and not (path.is_dir() and not any(path.iterdir()))


def _hidden(final: Path, suffix: str) -> Path:
    """The name of what this process is making, or taking away, beside its final name."""
    return final.with_name(f".{final.name}-{os.getpid()}{suffix}")


def _is_another_process(number: int) -> bool:
    """Whether a process of this number runs, and is not this one."""
    if number == os.getpid():
        return False
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's process
        return True
    return True


@dataclass(frozen=True)
class FileEntry:
    """What a manifest says of a file: its size, and the hexadecimal sha256 of its content."""

    bytes: int
    sha256: str


def fingerprints(folder: Path, names: Iterable[str] | None = None) -> dict[str, FileEntry]:
    """The entries, by name, of the named files of a folder, or of all of them."""
    with disk_errors(folder, "Reading"):
        chosen = [path.name for path in folder.iterdir()] if names is None else names
        files = [folder / name for name in sorted(chosen)]
        return {file.name: FileEntry(file.stat().st_size, sha256_of_file(file)) for file in files}


def mismatch(folder: Path, files: Mapping[str, FileEntry], *, hashes: bool = True) -> str:
    """What is wrong with a folder against the `files` of its manifest, in words; "" if nothing is."""
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            return f"'{path}' is missing"
        if path.stat().st_size != expected.bytes:
            return f"'{path}' has {path.stat().st_size:,} bytes instead of {expected.bytes:,}"
        if hashes and sha256_of_file(path) != expected.sha256:
            return f"'{path}' was altered (its sha256 differs)"
    return ""


def sha256_of_file(path: Path) -> str:
    """Hexadecimal sha256 of a file, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def to_json(value: Any) -> bytes:
    """Readable UTF-8 JSON with a final newline, entries as tables; NaN is refused, since other readers refuse it."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=asdict) + "\n").encode()


class AppendLog:
    """A file of lines that only grows. Each line reaches the operating system at once; `sync` brings it to the disk.

    What the disk refuses is kept, and written before the next line: a disk that is full for a while costs no line.
    """

    def __init__(self, path: Path, keep_bytes: int) -> None:
        """Open `path`, cut to `keep_bytes` bytes (0: anew), a shorter one to whole lines; a folder is put aside."""
        self.path = path
        self._unwritten = b""
        with disk_errors(path):
            if path.exists() and not path.is_file():
                os.rename(path, path.with_name(f"{path.name}.aside-{os.getpid()}"))
            self._file = open(path, "a+b", buffering=0)  # noqa: SIM115 - closed by close()
            self._file.seek(0)
            kept = self._file.read(keep_bytes)
            # `truncate` would fill a file that lost its end with zeros, and a next line would hang on to half a one.
            self._file.truncate(kept.rfind(b"\n") + 1)
            self._file.seek(0, os.SEEK_END)
            _flush_directory(path.parent)  # its name may be new

    def append(self, line: str) -> None:
        """Add a line. Where this raises StorageError the line is kept, and comes with the next one."""
        self._unwritten += line.encode() + b"\n"
        self._write()

    def sync(self) -> int:
        """Flush to the disk; the length in bytes. Raises StorageError while a line is still unwritten."""
        self._write()
        with disk_errors(self.path):
            os.fsync(self._file.fileno())
            return self._file.tell()

    def close(self) -> None:
        self._file.close()

    def _write(self) -> None:
        with disk_errors(self.path):
            while self._unwritten:
                self._unwritten = self._unwritten[self._file.write(self._unwritten) :]


class FolderLock:
    """One writer at a time: an operating-system lock on a folder, released at the latest when the process ends."""

    def __init__(self, folder: Path) -> None:
        """Take the lock; raises StorageError if another process holds it."""
        self._folder = folder
        with disk_errors(folder):
            _make_directories(folder)
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

    def moved(self) -> bool:
        """Whether the locked folder is no longer at the path at which it was locked."""
        try:
            return not os.path.samestat(os.stat(self._folder), os.fstat(self._descriptor))
        except OSError:
            return True

    def whereabouts(self) -> Path | None:
        """The path of the locked folder now; None if it was deleted, or the system does not tell."""
        try:
            if sys.platform == "darwin":
                found = Path(os.fsdecode(fcntl.fcntl(self._descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")))
            else:
                found = Path(os.readlink(f"/proc/self/fd/{self._descriptor}"))
            return found if os.path.samestat(os.stat(found), os.fstat(self._descriptor)) else None
        except OSError:
            return None


def _make_directories(path: Path) -> None:
    """`mkdir -p`, such that the new names survive a power failure."""
    if not path.is_dir():
        _make_directories(path.parent)
        path.mkdir(exist_ok=True)
        _flush_directory(path.parent)


def _write(file: BinaryIO, content: bytes | Iterable[bytes | memoryview]) -> None:
    for piece in [content] if isinstance(content, bytes) else content:
        file.write(piece)


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
