"""Reading files that come from strangers: never more than they may hold, and JSON without its traps.

Errors are ValueErrors whose text goes on after "cannot be read:", and OSErrors of the disk. Whoever reads a file knows
how to call it, and turns them into an error of ours.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

MAX_DEPTH = 64
"""Levels of objects and lists within each other."""
MAX_DIGITS = 100
"""Digits of a whole number: more would be no count, and does not fit into a float."""
_CHUNK_BYTES = 1 << 20
"""Read at once, since Python takes memory for all that is asked for."""
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


def read_bounded(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes, checked before it is read.

    A pipe or device in its place is never opened: it might not end.
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
        raise ValueError(f"it is too large to be what its name says ({size:,} bytes, where {most:,} are allowed)")
    return bytes(content)


def strict_json(content: bytes | str) -> Any:
    """The value of a JSON text in UTF-8.

    Refused is what programs read in different ways, or cannot use: a key that is there twice, NaN and infinity, numbers
    beyond any count, deep nesting, half a character.
    """
    text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_float, parse_int=_int
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not _is_shallow(value):
        raise ValueError("it is nested too deeply")
    if _HALF_CHARACTER.search(text):
        _require_whole_characters(value)
    return value


def is_plain_name(name: str) -> bool:
    """Whether a name from a file stands for something directly beside that file, and for nothing hidden."""
    return bool(name) and not name.startswith(".") and not set(name) & {*"/\\\0"}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"it has the key {next(key for key in keys if keys.count(key) > 1)[:100]!r} twice")
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(f"it has {name}, which is no JSON")


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
