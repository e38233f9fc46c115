"""Reading the JSON files of run and model folders."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from gptcli.errors import ModelFolderError, reason_of
from gptcli.storage import FileEntry
from gptcli.untrusted import read_bounded, strict_json

SIZE_LIMIT = 1 << 20
"""Size limit in bytes for a config.json, index or manifest."""

RESTORE = "Restore the file from a copy."


def read_json(path: Path, expected: FileEntry | None = None, *, missing_ok: bool = False) -> dict[str, Any]:
    """A JSON object from a small file, verified against its manifest entry if one is given; raises ModelFolderError.

    A missing file is {} with `missing_ok`.
    """
    try:
        content = read_bounded(path, SIZE_LIMIT)
        if expected and (len(content), hashlib.sha256(content).hexdigest()) != (expected.bytes, expected.sha256):
            raise ModelFolderError(f"'{path}' was altered (its sha256 differs).", RESTORE)
        value = strict_json(content)
    except FileNotFoundError:
        if missing_ok:
            return {}
        raise ModelFolderError(f"'{path}' is missing.", RESTORE) from None
    except OSError as error:
        raise ModelFolderError(f"'{path}' cannot be read: {reason_of(error)}.") from None
    except ValueError as error:
        raise ModelFolderError(f"'{path}' cannot be read: {error}.", RESTORE) from None
    if not isinstance(value, dict):
        raise ModelFolderError(f"'{path}' is not a JSON object.", RESTORE)
    return value
