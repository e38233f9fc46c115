"""Possible contents of a disk after a power failure: a file system that keeps only flushed data.

From a record of operations, `states` rebuilds a folder as it may be after the power fails:

- A file has its content at its last fsync. Of later writes, all, none, or a part up to some byte survive; or the length
  survives, with zeros in place of the content.
- Names are those at the last fsync of their folder. Of later changes, any may survive; a rename survives as a whole or
  not at all.

Common file systems promise more.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.disk import Operation


@dataclass
class _File:
    """A file or folder, whatever its name is."""

    is_folder: bool = False
    content: bytes = b""
    flushed: bytes = b""
    versions: list[bytes] = field(default_factory=list)
    """Contents between the last fsync and now."""

    def change(self, content: bytes) -> None:
        self.versions.append(self.content)
        self.content = content

    def flush(self) -> None:
        self.flushed, self.versions = self.content, []

    def after_failure(self, chance: random.Random) -> bytes:
        if self.content == self.flushed and not self.versions:
            return self.content
        kind = chance.choice(["all", "nothing", "earlier", "cut", "zeros"])
        if kind == "all":
            return self.content
        if kind == "nothing":
            return self.flushed
        if kind == "earlier":
            return chance.choice([self.flushed, *self.versions])
        pairs = enumerate(zip(self.flushed, self.content, strict=False))
        common = next((at for at, (one, other) in pairs if one != other), min(len(self.flushed), len(self.content)))
        cut = chance.randint(common, max(common, len(self.content)))
        return self.content[:cut] if kind == "cut" else self.content[:cut] + bytes(len(self.content) - cut)


@dataclass(frozen=True)
class _Change:
    """A change of names within a folder: `name` now means `file` (None: nothing), and `gone` no longer exists."""

    folder: int
    name: str
    file: int | None
    gone: str = ""


class PoweredDisk:
    """Replays a record, and makes the states that a power failure could leave."""

    def __init__(self) -> None:
        self.files: list[_File] = [_File(is_folder=True)]
        self.names: list[dict[str, int]] = [{}]
        """Files of each folder by name, as they are now."""
        self.flushed_names: list[dict[str, int]] = [{}]
        self.pending: list[_Change] = []

    def carry_out(self, operation: Operation) -> None:
        """Replay one operation that succeeded."""
        kind, place = operation.kind, operation.path
        if kind == "mkdir":
            self._name(place, self._new(is_folder=True))
        elif kind == "open":
            if self._find(place) is None:
                self._name(place, self._new())
        elif kind == "write":
            file = self._file(place)
            start, end = operation.place, operation.place + len(operation.data)
            file.change(file.content[:start].ljust(start, b"\0") + operation.data + file.content[end:])
        elif kind == "truncate":
            file = self._file(place)
            file.change(file.content[: operation.place])
        elif kind == "fsync":
            self._flush(place)
        elif kind == "rename":
            self._rename(place, operation.target)
        elif kind == "unlink":
            self._name(place, None)

    def fail(self, folder: Path, chance: random.Random) -> None:
        """Write a state that a power failure could leave now into an empty folder."""
        share = chance.choice([0.0, 0.2, 0.5, 0.8, 1.0])
        names = [dict(entries) for entries in self.flushed_names]
        for change in self.pending:
            if chance.random() < share and (not change.gone or change.gone in names[change.folder]):
                _apply(names[change.folder], change)
        self._write(folder, 0, names, chance)

    def _write(self, folder: Path, number: int, names: list[dict[str, int]], chance: random.Random) -> None:
        for name, inner in names[number].items():
            if self.files[inner].is_folder:
                (folder / name).mkdir()
                self._write(folder / name, inner, names, chance)
            else:
                (folder / name).write_bytes(self.files[inner].after_failure(chance))

    def _new(self, *, is_folder: bool = False) -> int:
        self.files.append(_File(is_folder=is_folder))
        self.names.append({})
        self.flushed_names.append({})
        return len(self.files) - 1

    def _find(self, place: str) -> int | None:
        number: int | None = 0
        for part in Path(place).parts:
            number = self.names[number].get(part) if number is not None else None
        return number

    def _file(self, place: str) -> _File:
        number = self._find(place)
        assert number is not None, f"{place} is not there"
        return self.files[number]

    def _folder_of(self, place: str) -> int:
        number = self._find(os.path.dirname(place))
        assert number is not None, f"the folder of {place} is not there"
        return number

    def _name(self, place: str, file: int | None, gone: str = "") -> None:
        change = _Change(self._folder_of(place), os.path.basename(place), file, gone)
        _apply(self.names[change.folder], change)
        self.pending.append(change)

    def _rename(self, place: str, target: str) -> None:
        assert os.path.dirname(place) == os.path.dirname(target), "renaming stays within a folder"
        self._name(target, self._find(place), gone=os.path.basename(place))

    def _flush(self, place: str) -> None:
        number = self._find(place)
        assert number is not None, f"{place} is not there"
        if self.files[number].is_folder:
            self.flushed_names[number] = dict(self.names[number])
            self.pending = [change for change in self.pending if change.folder != number]
        else:
            self.files[number].flush()


def _apply(names: dict[str, int], change: _Change) -> None:
    names.pop(change.gone, None)
    names.pop(change.name, None)
    if change.file is not None:
        names[change.name] = change.file


def saved_steps(operations: list[Operation]) -> list[tuple[int, int]]:
    """(operations done, step) of each checkpoint at the end of its save: when its name is flushed to the disk."""
    found, pending = [], None
    for done, operation in enumerate(operations, 1):
        if operation.kind == "rename" and os.path.basename(operation.target).startswith("step-"):
            pending = operation.target
        elif pending is not None and operation.kind == "fsync" and operation.path == os.path.dirname(pending):
            found.append((done, int(pending[-8:])))
            pending = None
    return found
