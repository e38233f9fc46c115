"""Temporary folders that a killed process does not leave behind for good."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gptcli.storage.disk import disk_errors

PREFIX = ".gptcli-scratch-"
_UNLOCKED_SUFFIX = ".new"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, removed at the end. Those that killed processes have left are removed first."""
    parent = Path(tempfile.gettempdir())
    with disk_errors(parent, option="TMPDIR"):
        _remove_abandoned(parent)
        unlocked = Path(tempfile.mkdtemp(prefix=PREFIX, suffix=_UNLOCKED_SUFFIX))
        descriptor = os.open(unlocked, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks, where nothing is taken for abandoned either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        folder = unlocked.with_suffix("")  # only now another process may look at it
        os.rename(unlocked, folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    """Delete the scratch folders of this user that no process has locked."""
    for folder in parent.glob(f"{PREFIX}*"):
        if folder.suffix == _UNLOCKED_SUFFIX:
            continue
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_uid == os.getuid():
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
