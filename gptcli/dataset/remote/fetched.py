"""Files that were fetched from elsewhere, as the rest of the program sees them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gptcli.dataset.remote.cache import Record


@dataclass(frozen=True)
class RemoteFile:
    """A file on this machine, under the name that people know it by."""

    path: Path
    name: str
    """For messages and manifests, such as its address without credentials and query."""


@dataclass(frozen=True)
class Fetched:
    """What an address or a named corpus gives."""

    files: tuple[RemoteFile, ...]
    notes: tuple[str, ...] = ()
    """Sentences for the user about where the text comes from."""
    skipped: tuple[tuple[str, str], ...] = ()
    """Files of a folder that are not read, with the reason."""
    from_folder: bool = False


def dated_note(what: str, record: Record, folder: Path) -> str:
    """A note about text that may have changed since it was downloaded."""
    return f"{what} is read from the cache, as of {record.day}. To download it again, delete '{folder}'."
