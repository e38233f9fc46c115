"""The files that a piece of code opens, by Python's audit events."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Opened:
    """A regular file that was opened."""

    path: Path
    is_read: bool
    is_written: bool


_recording: list[Opened] | None = None
_is_installed = False


@contextmanager
def opened_files() -> Iterator[list[Opened]]:
    """The regular files that this process opens within the context, in order."""
    global _recording, _is_installed
    if not _is_installed:  # an audit hook stays until the process ends
        sys.addaudithook(_record)
        _is_installed = True
    _recording = found = []
    try:
        yield found
    finally:
        _recording = None


def _record(event: str, arguments: tuple[object, ...]) -> None:
    if _recording is None or event != "open":
        return
    path, _, flags = arguments
    if isinstance(path, str | bytes | os.PathLike) and isinstance(flags, int):
        place = Path(os.path.abspath(os.fsdecode(path)))
        access = flags & os.O_ACCMODE
        is_written = access != os.O_RDONLY
        if place.is_file() or is_written:
            _recording.append(Opened(place, access != os.O_WRONLY, is_written))
