"""Disk errors as messages, flushing, and checks of a path before something is written there."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, cast

from gptcli.errors import StorageError, reason_of


@contextmanager
def disk_errors(path: Path, doing: Literal["Writing", "Reading"] = "Writing", option: str = "`out`") -> Iterator[None]:
    """Turn an OSError about `path` into a StorageError with a hint. `option` is the setting of another place."""
    full = f"Free some space, or choose another place with {option}, and run the same command again."
    hints = {
        **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), full),
        errno.EROFS: f"Choose a writable place with {option}.",
        **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), f"A file is in the way; choose another place with {option}."),
        errno.ENAMETOOLONG: f"Choose a shorter name with {option}.",
        **dict.fromkeys((errno.EACCES, errno.EPERM), f"Check the permissions, or choose another place with {option}."),
    }
    try:
        yield
    except OSError as error:
        hint = hints.get(error.errno or 0, "")
        raise StorageError(f"{doing} '{path}' failed: {reason_of(error)}.", hint) from error


def free_space(place: Path) -> int:
    """Free bytes of the disk of a path, or of the nearest folder above it that exists. Raises StorageError."""
    place = place.absolute()
    with disk_errors(place, "Reading"):
        return shutil.disk_usage(next(folder for folder in (place, *place.parents) if folder.exists())).free


def refuse_impossible_place(final: Path) -> None:
    """Raise StorageError for a place where a later write must fail, or must not be made.

    That is below a file, in a folder without write permission, and the working directory, whose replacement would leave
    the shell in a deleted folder.
    """
    with disk_errors(final, "Reading"):
        is_here = final.resolve() == Path.cwd()
    if is_here:
        raise StorageError(
            f"'{final}' is the current directory, which cannot be replaced.", "Choose a folder inside it with `out`."
        )
    with disk_errors(final):
        above = next((folder for folder in final.absolute().parents if os.path.lexists(folder)), final)
        if not above.is_dir():
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(above, os.W_OK | os.X_OK):
            problem = errno.EROFS if os.statvfs(above).f_flag & os.ST_RDONLY else errno.EACCES
            raise OSError(problem, os.strerror(problem))


def is_occupied(path: Path) -> bool:
    """Whether anything except an empty folder is at `path`; raises StorageError if that cannot be determined."""
    with disk_errors(path, "Reading"):
        return path.exists() and not (path.is_dir() and not any(path.iterdir()))


@contextmanager
def unnamed_file() -> Iterator[BinaryIO]:
    """A temporary file without a name, to write and read; its space is freed even if the process is killed."""
    folder = Path(tempfile.gettempdir())
    with disk_errors(folder, option="TMPDIR"):
        file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed below
    with file:
        yield file


def make_directories(path: Path) -> None:
    """`mkdir -p`, such that the new names survive a power failure."""
    if not path.is_dir():
        make_directories(path.parent)
        path.mkdir(exist_ok=True)
        flush_directory(path.parent)


def write_flushed(file: BinaryIO, content: bytes | Iterable[bytes | memoryview]) -> None:
    """Write `content`, which may come in pieces, and flush the file to the disk."""
    for piece in [content] if isinstance(content, bytes) else content:
        file.write(piece)
    flush(file)


def flush(file: BinaryIO) -> None:
    """Flush a file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def flush_directory(path: Path) -> None:
    """Flush the names in a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
