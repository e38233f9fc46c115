"""The cache of texts from elsewhere: a folder for each address, with a record of what it holds.

~/.cache/gptcli/downloads/<hash of the address>/
    download.json      address, date, files with sizes and hashes; written last
    book.txt.gz        the text
    partial            the beginning of a download that broke off, and
    partial.json       what its server said of the whole
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gptcli import storage
from gptcli.dataset.sources import OnProgress
from gptcli.errors import StorageError, size
from gptcli.untrusted import read_bounded, strict_json

PLACE = "XDG_CACHE_HOME"
"""The environment variable that moves the cache, for hints."""

_RECORD = "download.json"
_MAX_BYTES = 1 << 26

Model = TypeVar("Model", bound=BaseModel)


class Entry(BaseModel):
    """An object in a JSON file of the cache."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class CachedFile(Entry):
    """A file, with its hash: a sha256, or `git:` and the sha1 of a git blob, which the Hub has of small files."""

    name: Annotated[str, Field(pattern=r"^[^/\x00][^\x00]*$")]
    bytes: Annotated[int, Field(ge=0)]
    hash: Annotated[str, Field(pattern=r"^(git:[0-9a-f]{40}|[0-9a-f]{64})$")]


class Record(Entry):
    """The content of `download.json`."""

    format: Literal[1] = 1
    address: str
    """Without credentials and query."""
    day: date = Field(default_factory=date.today)
    revision: str = ""
    """The commit on the Hub."""
    files: tuple[CachedFile, ...]


def cache_root() -> Path:
    """`~/.cache/gptcli`, or `gptcli` in `XDG_CACHE_HOME` where that is set."""
    stated = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(stated):  # others are to be ignored: https://specifications.freedesktop.org/basedir-spec
        return Path(stated, "gptcli")
    try:
        return Path.home() / ".cache" / "gptcli"
    except RuntimeError:
        message = "There is no place for downloads: this user has no home folder."
        raise StorageError(message, f"Name a folder for caches with {PLACE}.") from None


def folder_of(address: str) -> Path:
    """The folder of an address, whether it exists or not."""
    return cache_root() / "downloads" / hashlib.sha256(address.encode(errors="surrogatepass")).hexdigest()[:32]


@contextmanager
def locked(folder: Path, on_progress: OnProgress) -> Iterator[None]:
    """Make a folder of the cache, and let one process at a time work in it; waiting is reported as a stage."""
    with storage.disk_errors(folder, option=PLACE):
        storage.make_directories(folder)
    with storage.alone_in(folder, lambda: on_progress("waiting for another process", 0, 0)):
        storage.remove_leftovers(folder)
        yield


def read_record(folder: Path) -> Record | None:
    """The record of a folder; None if it is missing or damaged, so that the text is downloaded again."""
    return read_entry(folder / _RECORD, Record)


def write_record(folder: Path, record: Record) -> None:
    """Add the record, which makes the folder complete."""
    write_entry(folder / _RECORD, record)


def read_entry(path: Path, model: type[Model]) -> Model | None:
    """The object in a JSON file of the cache; None if it is missing or damaged."""
    try:
        return model.model_validate(strict_json(read_bounded(path, _MAX_BYTES)))
    except (OSError, ValueError, ValidationError):
        return None


def write_entry(path: Path, entry: Entry) -> None:
    """Write or replace a JSON file of the cache."""
    storage.write_file(path, storage.to_json(entry.model_dump(mode="json")), option=PLACE)


def problem_of(path: Path, entry: CachedFile) -> str:
    """The difference between a file and its entry, as a clause; "" if there is none."""
    with storage.disk_errors(path, "Reading"):
        if not path.is_file():
            return "it is missing"
        if path.stat().st_size != entry.bytes:
            return f"it has {path.stat().st_size:,} bytes instead of {entry.bytes:,}"
        return "" if _hash(path, entry) == entry.hash else f"its hash is not {entry.hash}"


def require_room(folder: Path, needed: int) -> None:
    """Raise StorageError if the disk of a folder, which need not exist yet, has no room for `needed` more bytes."""
    free = storage.free_space(folder)
    if needed > free:
        hint = f"Free some space, or choose another place for downloads with {PLACE}."
        raise StorageError(f"The download needs {size(needed)} in '{folder}', and {size(free)} are free.", hint)


def _hash(path: Path, entry: CachedFile) -> str:
    """The hash of a file, of the kind that its entry has."""
    if not entry.hash.startswith("git:"):
        return storage.sha256_of_file(path)
    hasher = hashlib.sha1(b"blob %d\0" % entry.bytes, usedforsecurity=False)
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            hasher.update(piece)
    return f"git:{hasher.hexdigest()}"
