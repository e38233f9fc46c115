"""Reading untrusted files: a size limit, and strict JSON.

Errors are ValueErrors whose text completes "cannot be read: …", and OSErrors of the disk. Callers turn them into
GptcliErrors that name the file.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

MAX_DEPTH = 64
"""Nesting levels of objects and lists."""
MAX_DIGITS = 100
"""Digits of a whole number: far more than any count has, and still within a float."""
_CHUNK_BYTES = 1 << 20
"""Size of one read, since Python allocates the whole size before it reads."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_bounded(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes, checked before reading.

    Pipes and devices are never opened: they may not end.
    """
    size = path.stat().st_size
    if not path.is_file():
        raise ValueError("it is not a regular file")
    if size <= most:
        content = bytearray()
        with open(path, "rb") as file:
            while len(content) <= most and (piece := file.read(_CHUNK_BYTES)):  # it may have grown
                content += piece
        size = len(content)
    if size > most:
        raise ValueError(f"it is too large for a file of this kind ({size:,} bytes; the limit is {most:,})")
    return bytes(content)


def strict_json(content: bytes | str) -> Any:
    """The value of a JSON text in UTF-8.

    Raises ValueError for JSON that programs read in different ways or cannot use: duplicate keys, NaN and infinity,
    huge numbers, deep nesting, lone surrogates.
    """
    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_float, parse_int=_int
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        place = f" (line {error.lineno:,}, column {error.colno:,})" if text.strip() else ": it is empty"
        raise ValueError(f"it is not JSON{place}") from None
    except UnicodeDecodeError:
        raise ValueError("it is not JSON: it is not text in UTF-8") from None
    if not _is_shallow(value):
        raise ValueError("it is nested too deeply")
    if _SURROGATE.search(text):
        _require_whole_characters(value)
    return value


def is_plain_name(name: str) -> bool:
    """Whether a name in a file can be that of a visible file in the same folder."""
    return bool(name) and not name.startswith(".") and not set(name) & {*"/\\\0"}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"it has the key {next(key for key in keys if keys.count(key) > 1)[:100]!r} twice")
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(f"it has {name}, which is not valid JSON")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("it has a number that is too large")
    return value


def _int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError("it has a number that is too large")
    return int(digits)


def _is_shallow(value: Any) -> bool:
    level = [[value]]
    for _ in range(MAX_DEPTH):
        inner = [child for group in level for child in group if isinstance(child, dict | list)]
        level = [[*child.values()] if isinstance(child, dict) else child for child in inner]
    return not any(isinstance(child, dict | list) for group in level for child in group)


def _require_whole_characters(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it has half a character (a lone surrogate)") from None
