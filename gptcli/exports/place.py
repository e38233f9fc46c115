"""Where an export is written, and what may be replaced there."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from gptcli.errors import StorageError
from gptcli.storage import disk_errors, refuse_working_folder

_HINT = "Choose another place with --out, or replace it with --force."


def require_free_file(path: Path, magic: bytes, *, force: bool) -> None:
    """Raise StorageError if a file cannot be written at `path`.

    `force` allows to replace an earlier export, which begins with `magic`: nobody should lose a text or a run's weights
    to a slip of the fingers.
    """
    with disk_errors(path):
        if path.is_dir():
            raise StorageError(f"'{path}' is a folder.", "Name the file to write with --out.")
        if path.exists() and not _begins_with(path, magic):
            problem = f"'{path}' was not written by an export, so that it is not replaced."
            raise StorageError(problem, "Choose another place with --out.")
        if path.exists() and not force:
            raise StorageError(f"'{path}' is already there.", _HINT)
        path.parent.mkdir(parents=True, exist_ok=True)


def require_free_folder(path: Path, names: Collection[str], *, force: bool) -> None:
    """Raise StorageError if a folder cannot be made at `path`.

    An empty folder does not count. `force` allows to replace an earlier export, which holds nothing but `names`: nobody
    should lose a run or a home folder to a slip of the fingers.
    """
    refuse_working_folder(path)
    with disk_errors(path):
        if not path.exists():
            return
        if not path.is_dir():
            raise StorageError(f"'{path}' is a file.", "Name the folder to make with --out.")
        foreign = sorted(entry.name for entry in path.iterdir() if entry.name not in names)
        if foreign:
            problem = f"'{path}' holds '{foreign[0]}', which no export wrote, so that it is not replaced."
            raise StorageError(problem, "Choose another place with --out.")
        if any(path.iterdir()) and not force:
            raise StorageError(f"'{path}' is already there.", _HINT)


def _begins_with(path: Path, magic: bytes) -> bool:
    if not path.is_file():  # a pipe would have to be waited for
        return False
    with open(path, "rb") as file:
        return file.read(len(magic)) == magic
