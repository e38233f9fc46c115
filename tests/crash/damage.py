"""Ways to damage a file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

Damage = Callable[[Path], None]

FLIPS = (0.0, 0.03, 0.3, 0.6, 0.9, 0.999)


def damages(path: Path) -> Iterator[tuple[str, Damage]]:
    """Names and functions of all damages that apply to a file."""
    yield "missing", Path.unlink
    yield "empty", _rewritten(lambda content: b"")
    yield "cut to a byte", _rewritten(lambda content: content[:1])
    yield "cut to half", _rewritten(lambda content: content[: len(content) // 2])
    yield "cut by a byte", _rewritten(lambda content: content[:-1])
    yield "one byte longer", _rewritten(lambda content: content + b"\n")
    for share in FLIPS:
        yield f"a bit flipped at {share:.1%}", _flipped(share)
    yield "a folder", _replaced_by(Path.mkdir)
    yield "a dangling link", _replaced_by(lambda path: path.symlink_to("nowhere"))
    yield "a link to a device", _replaced_by(lambda path: path.symlink_to("/dev/null"))
    if path.suffix == ".json":
        yield "a key twice", _rewritten(lambda content: content.replace(b"{", b'{"format": 7,', 1))
        yield "NaN", _rewritten(lambda content: re.sub(rb"\d+", b"NaN", content, count=1))
        yield "a huge number", _rewritten(lambda content: re.sub(rb"\d+", b"9" * 400, content, count=1))
        yield "extreme depth", _rewritten(lambda content: b"[" * 100_000)


def _rewritten(change: Callable[[bytes], bytes]) -> Damage:
    return lambda path: _write(path, change(path.read_bytes()))


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _flipped(share: float) -> Damage:
    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(share * len(content))] ^= 1
        path.write_bytes(content)

    return flip


def _replaced_by(make: Callable[[Path], None]) -> Damage:
    def replace(path: Path) -> None:
        os.unlink(path)
        make(path)

    return replace
