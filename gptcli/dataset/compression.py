"""Compressed sources: the bytes inside `.gz`, `.bz2`, `.xz` and `.zst`, as a stream."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, BinaryIO

_MAGIC = {
    ".gz": b"\x1f\x8b",
    ".bz2": b"BZh",
    ".xz": b"\xfd7zXZ\x00",
    ".zst": b"\x28\xb5\x2f\xfd",
}
COMPRESSIONS = tuple(_MAGIC)
"""Suffixes of compressed files."""
_DAMAGED = "its content cannot be unpacked"


class NoZstdError(ImportError):
    """This Python cannot read Zstandard."""


def compression_of_name(path: PurePath) -> str:
    """The suffix of a compressed file, or ""."""
    suffix = path.suffix.lower()
    return suffix if suffix in _MAGIC else ""


def compression_of_content(start: bytes) -> str:
    """The suffix that a file beginning with `start` should have if it is compressed, or ""."""
    return next((suffix for suffix, magic in _MAGIC.items() if start.startswith(magic)), "")


def inner_name(path: PurePath) -> PurePath:
    """The path without the suffix of a compressed file: books/a.txt.gz → books/a.txt."""
    return path.with_suffix("") if compression_of_name(path) else path


@contextmanager
def unpacking(file: BinaryIO, compression: str) -> Iterator[BinaryIO]:
    """The content of a compressed file as a stream.

    Raises NoZstdError, and in the context ValueError for damage, with the reason. bz2 reports damage as an OSError
    without a number.
    """
    stream: Any
    damage: tuple[type[Exception], ...] = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
    match compression:
        case ".gz":
            stream = gzip.GzipFile(fileobj=file)
        case ".bz2":
            stream = bz2.BZ2File(file)
        case ".xz":
            stream = lzma.LZMAFile(file)  # noqa: SIM115
        case _:
            zstd = _zstd()
            stream, damage = zstd.ZstdFile(file), (EOFError, zstd.ZstdError)
    with stream:
        try:
            yield stream
        except EOFError:
            raise ValueError("it is cut off") from None
        except damage:
            raise ValueError(_DAMAGED) from None
        except OSError as error:
            if error.errno is not None:
                raise
            raise ValueError(_DAMAGED) from None


def _zstd() -> Any:
    """Python's module for Zstandard, or its backport. The package zstandard is no substitute: it reads a file that is
    cut off without an error."""
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError:
        raise NoZstdError("Zstandard is not installed") from None
    return zstd
