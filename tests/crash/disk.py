"""Between Python and the operating system: every operation on files below a folder passes through one function.

`Disk(root, watch)` replaces the functions of `os`, `io` and `fcntl` that the storage package uses. Each call on a path
below `root` becomes an `Operation`, and `watch(operation, act)` decides: `act()` carries it out, `act(n)` writes only
the first n bytes. So a test can count the operations, die at one, fail at one, or record all. TensorBoard's event files
are left out.
"""

from __future__ import annotations

import builtins
import fcntl
import io
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

CHANGING = ("open", "write", "fsync", "rename", "mkdir", "unlink", "truncate", "lock")
"""Operations that change the disk; the others are `read` and `look` (opening to read)."""


@dataclass(frozen=True)
class Operation:
    """One call of the operating system. Paths are relative to the root."""

    kind: str
    path: str
    target: str = ""
    """Target of a rename."""
    data: bytes = b""
    """Bytes of a write."""
    place: int = 0
    """Offset of a write in the file, or the length that truncation leaves."""
    is_folder: bool = False
    failed: bool = False
    """Whether the operating system refused (in a record)."""


Act = Callable[..., Any]
Watch = Callable[[Operation, Act], Any]


class Disk:
    """A context in which `watch` sees every operation below `root`."""

    def __init__(self, root: Path, watch: Watch) -> None:
        self.watch = watch
        self._root = os.path.realpath(root)
        self._open = builtins.open
        self._paths: dict[int, str] = {}
        """Paths of descriptors; a closed one may still be here, and is replaced when its number comes again."""
        self._patches = ExitStack()

    def __enter__(self) -> Disk:
        for module, name, wrapper in (
            (builtins, "open", self._opening),
            (io, "open", self._opening),
            (os, "open", self._os_open(os.open)),
            (os, "mkdir", self._by_path("mkdir", os.mkdir, is_folder=True)),
            (os, "rmdir", self._by_path("unlink", os.rmdir, is_folder=True)),
            (os, "unlink", self._by_path("unlink", os.unlink)),
            (os, "rename", self._renaming(os.rename)),
            (os, "replace", self._renaming(os.replace)),
            (os, "fsync", self._by_descriptor("fsync", os.fsync)),
            (fcntl, "flock", self._by_descriptor("lock", fcntl.flock)),
        ):
            self._patches.enter_context(mock.patch.object(module, name, wrapper))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def inside(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The path relative to the root; None if it is elsewhere or an event file."""
        if isinstance(path, int):
            return self._paths.get(path)
        folder = self._paths.get(dir_fd) if dir_fd is not None else None
        if dir_fd is not None:
            return None if folder is None else os.path.join(folder, os.fsdecode(path))
        full = os.path.abspath(os.fsdecode(path))
        full = os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full))
        is_inside = full == self._root or full.startswith(self._root + os.sep)
        if not is_inside or os.path.basename(full).startswith("events.out"):
            return None
        return os.path.relpath(full, self._root)

    def _opening(self, file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **options: Any) -> Any:
        place = None if isinstance(file, int) else self.inside(file)
        if place is None or "b" not in mode:
            opened = self._open(file, mode, buffering, *rest, **options)
            self._paths.pop(opened.fileno(), None)
            return opened
        kind = "look" if mode == "rb" else "open"
        raw = self.watch(Operation(kind, place), lambda: _File(os.fsdecode(file), mode, self, place))
        self._paths[raw.fileno()] = place
        if buffering == 0:
            return raw
        if "+" in mode:
            return io.BufferedRandom(raw)
        return io.BufferedReader(raw) if mode == "rb" else io.BufferedWriter(raw)

    def _os_open(self, plain: Act) -> Act:
        def wrapper(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> Any:
            place = self.inside(path, dir_fd)
            if place is None:
                descriptor = plain(path, flags, mode, dir_fd=dir_fd)
                self._paths.pop(descriptor, None)
                return descriptor
            kind = "look" if flags & os.O_ACCMODE == os.O_RDONLY else "open"
            descriptor = self.watch(Operation(kind, place), lambda: plain(path, flags, mode, dir_fd=dir_fd))
            self._paths[descriptor] = place
            return descriptor

        return wrapper

    def _by_path(self, kind: str, plain: Act, *, is_folder: bool = False) -> Act:
        def wrapper(path: Any, *rest: Any, dir_fd: int | None = None) -> Any:
            place = self.inside(path, dir_fd)
            if place is None:
                return plain(path, *rest, dir_fd=dir_fd)
            operation = Operation(kind, place, is_folder=is_folder)
            return self.watch(operation, lambda: plain(path, *rest, dir_fd=dir_fd))

        return wrapper

    def _renaming(self, plain: Act) -> Act:
        def wrapper(source: Any, target: Any) -> Any:
            place, goal = self.inside(source), self.inside(target)
            if place is None or goal is None:
                return plain(source, target)
            return self.watch(Operation("rename", place, goal), lambda: plain(source, target))

        return wrapper

    def _by_descriptor(self, kind: str, plain: Act) -> Act:
        def wrapper(file: Any, *rest: Any) -> Any:
            place = self._paths.get(file if isinstance(file, int) else file.fileno())
            if place is None:
                return plain(file, *rest)
            is_folder = os.path.isdir(os.path.join(self._root, place))
            return self.watch(Operation(kind, place, is_folder=is_folder), lambda: plain(file, *rest))

        return wrapper


class _File(io.FileIO):
    """A raw file whose reads, writes and cuts are watched."""

    def __init__(self, path: str, mode: str, disk: Disk, place: str) -> None:
        super().__init__(path, mode)
        self._disk, self._place, self._appends = disk, place, "a" in mode

    def write(self, data: Any) -> int:
        content = bytes(data)
        start = os.fstat(self.fileno()).st_size if self._appends else self.tell()
        plain = super().write

        def act(count: int | None = None) -> int:
            return plain(content if count is None else content[:count])

        written: int = self._disk.watch(Operation("write", self._place, data=content, place=start), act)
        return written

    def truncate(self, size: int | None = None) -> int:
        length = self.tell() if size is None else size
        plain = super().truncate
        cut: int = self._disk.watch(Operation("truncate", self._place, place=length), lambda: plain(length))
        return cut

    def read(self, size: int | None = -1) -> Any:
        plain = super().read
        return self._disk.watch(Operation("read", self._place), lambda: plain(size))

    def readinto(self, buffer: Any) -> int:
        plain = super().readinto
        count: int = self._disk.watch(Operation("read", self._place), lambda: plain(buffer))
        return count

    def readall(self) -> bytes:
        plain = super().readall
        content: bytes = self._disk.watch(Operation("read", self._place), lambda: plain())
        return content
