"""Manifests: the size and SHA-256 of each file of a folder, as JSON, to detect damage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gptcli.errors import StorageError
from gptcli.storage.disk import disk_errors

MANIFEST_FILE = "manifest.json"
_PIECE = 1 << 20
"""Bytes that are read and compared at once."""


@dataclass(frozen=True)
class FileEntry:
    """A manifest's entry of a file: its size, and the hexadecimal SHA-256 of its content."""

    bytes: int
    sha256: str


def fingerprints(folder: Path, names: Iterable[str] | None = None) -> dict[str, FileEntry]:
    """The entries, by name, of the named files of a folder, or of all."""
    with disk_errors(folder, "Reading"):
        chosen = [path.name for path in folder.iterdir()] if names is None else names
        files = [folder / name for name in sorted(chosen)]
        return {file.name: FileEntry(file.stat().st_size, sha256_of_file(file)) for file in files}


def read_back(path: Path, content: Iterable[bytes | memoryview]) -> FileEntry:
    """The entry of a file, read from the disk; raises StorageError unless it holds exactly `content`."""
    hasher, size = hashlib.sha256(), 0
    with disk_errors(path, "Reading"), open(path, "rb") as file:
        for piece in content:
            for begin in range(0, len(piece), _PIECE):
                expected = bytes(piece[begin : begin + _PIECE])
                found = file.read(len(expected))
                if found != expected:
                    raise _altered(path)
                hasher.update(found)
                size += len(found)
        if file.read(1):
            raise _altered(path)
    return FileEntry(size, hasher.hexdigest())


def _altered(path: Path) -> StorageError:
    return StorageError(
        f"'{path}' was not stored as it was written.", "The disk may be failing: choose another place with `out`."
    )


def mismatch(folder: Path, files: Mapping[str, FileEntry], *, hashes: bool = True) -> str:
    """The first difference between a folder and the `files` of its manifest, as a clause; "" if there is none."""
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
    """Hexadecimal SHA-256 of a file, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def to_json(value: Any) -> bytes:
    """Readable UTF-8 JSON with a final newline; dataclasses become objects. NaN raises ValueError: JSON has none."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=asdict) + "\n").encode()
