"""Temporary folders that a killed process does not leave behind for good."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gptcli.storage.disk import disk_errors

PREFIX = ".gptcli-scratch-"
_UNLOCKED_SUFFIX = ".new"
_MAKING_SECONDS = 3600.0
"""Age from which on a folder that is not locked yet was left by a killed process."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, removed at the end. Those that killed processes have left are removed first."""
    parent = Path(tempfile.gettempdir())
    with disk_errors(parent, option="TMPDIR"):
        _remove_abandoned(parent)
        unlocked = Path(tempfile.mkdtemp(prefix=PREFIX, suffix=_UNLOCKED_SUFFIX))
        folder = unlocked.with_suffix("")
        try:
            descriptor = _locked(unlocked)
            os.rename(unlocked, folder)  # only now another process may look at it
        except BaseException:
            shutil.rmtree(unlocked, ignore_errors=True)
            raise
    try:
        inside = folder / "inside"  # for users that lock the folder that they got
        inside.mkdir()
        yield inside
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _locked(folder: Path) -> int:
    """A descriptor that locks a folder until it is closed."""
    descriptor = os.open(folder, os.O_RDONLY)
    with suppress(OSError):  # a file system without locks, where nothing is taken for abandoned either
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _remove_abandoned(parent: Path) -> None:
    """Delete the scratch folders of this user that no process has locked."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.suffix == _UNLOCKED_SUFFIX and time.time() - folder.stat().st_mtime < _MAKING_SECONDS:
                continue
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_uid == os.getuid():
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
