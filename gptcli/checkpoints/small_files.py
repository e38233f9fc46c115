"""Reading the small files of run and model folders: JSON, and the files that a run's manifest lists."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gptcli.checkpoints import names
from gptcli.errors import ModelFolderError, clause, reason_of
from gptcli.storage import MANIFEST_FILE, FileEntry
from gptcli.tokenizer.tokenizer import MAX_BYTES
from gptcli.untrusted import is_plain_name, read_bounded, strict_json

SIZE_LIMIT = 1 << 20
"""Size limit in bytes for a config.json, index or manifest."""
RESTORE = "Restore the file from a copy."
_FILES = TypeAdapter(dict[str, FileEntry])


def read_small(path: Path, expected: FileEntry | None = None, limit: int = SIZE_LIMIT) -> bytes:
    """The content of a small file, verified against its manifest entry if one is given; raises ModelFolderError."""
    try:
        content = read_bounded(path, limit)
    except FileNotFoundError:
        raise ModelFolderError(f"'{path}' is missing.", RESTORE) from None
    except OSError as error:
        raise ModelFolderError(f"'{path}' cannot be read: {reason_of(error)}.") from None
    except ValueError as error:
        raise ModelFolderError(f"'{path}' cannot be read: {error}.", RESTORE) from None
    if expected and len(content) != expected.bytes:
        raise ModelFolderError(f"'{path}' has {len(content):,} bytes instead of {expected.bytes:,}.", RESTORE)
    if expected and hashlib.sha256(content).hexdigest() != expected.sha256:
        raise ModelFolderError(f"'{path}' was altered (its sha256 differs).", RESTORE)
    return content


def read_json(path: Path, expected: FileEntry | None = None, *, missing_ok: bool = False) -> dict[str, Any]:
    """A JSON object from a small file, read by `read_small`; a missing file is {} with `missing_ok`."""
    if missing_ok and not os.path.exists(path):
        return {}
    try:
        value = strict_json(read_small(path, expected))
    except ValueError as error:
        raise ModelFolderError(f"'{path}' cannot be read: {error}.", RESTORE) from None
    if not isinstance(value, dict):
        raise ModelFolderError(f"'{path}' is not a JSON object.", RESTORE)
    return value


def listed_files(manifest: Mapping[str, Any], folder: Path) -> dict[str, FileEntry]:
    """The entries of a folder's manifest by file name; raises ModelFolderError."""
    try:
        return _FILES.validate_python(manifest.get("files"))
    except ValidationError:
        raise ModelFolderError(f"'{folder / MANIFEST_FILE}' has no list of files.", RESTORE) from None


def verified_files(folder: Path, manifest: Mapping[str, Any]) -> dict[str, bytes]:
    """The content of the small files that a run's manifest lists, by name, verified; raises ModelFolderError.

    gptcli.toml is left out, since only training depends on it, and the weights, which have a digest of their own.
    """
    try:
        entries, content = listed_files(manifest, folder), {}
        for name, entry in entries.items():
            if not is_plain_name(name):
                problem = f"'{folder / MANIFEST_FILE}' names '{name[:100]}', which is no file in its folder."
                raise ModelFolderError(problem, RESTORE)
            if name not in (names.MODEL, names.RUN_CONFIG):
                content[name] = read_small(folder / name, entry, MAX_BYTES)
        if not content:
            raise ModelFolderError(f"'{folder / MANIFEST_FILE}' lists no files.", RESTORE)
    except ModelFolderError as error:
        raise ModelFolderError(f"The run folder is damaged: {clause(error.message)}.", error.hint) from None
    return content
