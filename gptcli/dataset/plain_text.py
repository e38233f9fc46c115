"""The reader of plain text: strict UTF-8, one document for each file.

The error for any other file names its format: an archive, weights, UTF-16, binary data.
"""

from __future__ import annotations

import codecs
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from gptcli.dataset.sources import OnBytes, Source, chunks, opened
from gptcli.errors import CorpusError

_UTF8_BOM = codecs.BOM_UTF8


class NotTextError(CorpusError):
    """A file that is not text at all, as opposed to text in another encoding."""


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The reader of plain text (see `readers`): the whole file is one document."""
    yield read_text(source, on_bytes)


def read_text(source: Source, on_bytes: OnBytes) -> Iterator[str]:
    """The text of a file in non-empty pieces of about 128 kB, without its byte-order mark.

    Raises CorpusError, with the byte offset and the line, at the first byte that is not UTF-8, and NotTextError for
    content that is not text at all.
    """
    offset, carried = 0, b""  # carried: the start of a character whose end is in the next chunk
    for chunk in chunks(source):
        problem = _not_text(chunk, source) if offset == 0 else _BINARY if b"\0" in chunk else None
        if problem:
            what, hint = problem
            raise NotTextError(f"{source.label} {what}.", hint)
        data = chunk.removeprefix(_UTF8_BOM) if offset == 0 else carried + chunk
        try:
            text, used = codecs.utf_8_decode(data, "strict", False)
        except UnicodeDecodeError as error:
            raise _not_utf8(source, offset + len(chunk) - len(data) + error.start) from None
        carried = data[used:]
        offset += len(chunk)
        if text:
            yield text
        on_bytes(len(chunk))
    if carried:
        raise _not_utf8(source, offset - len(carried))


def has_byte_order_mark(source: Source) -> bool:
    """Whether the file starts with a UTF-8 byte-order mark."""
    with opened(source) as descriptor:
        return os.pread(descriptor, len(_UTF8_BOM), 0) == _UTF8_BOM


def _not_utf8(source: Source, offset: int) -> CorpusError:
    """The error for the byte at `offset`. Its line is counted only now, so that valid text costs nothing."""
    line, left = 1, offset
    for chunk in chunks(source):
        if left < len(chunk):
            break
        line += chunk.count(b"\n")
        left -= len(chunk)
    line += chunk.count(b"\n", 0, left)
    return CorpusError(
        f"{source.label} is not UTF-8 text: byte 0x{chunk[left]:02X} at offset {offset:,}, line {line:,}.",
        f"If it is Latin-1, convert it: {_conversion(source, 'ISO-8859-1')}",
    )


_NAME_A_TEXT = "Name a text file in UTF-8."
_BINARY = "is a binary file, not text (it has NUL bytes)", _NAME_A_TEXT
_PACKED = {
    "a gzip archive": (b"\x1f\x8b", (".gz", ".tgz")),
    "a zip archive": (b"PK\x03\x04", (".zip",)),
    "a Parquet file": (b"PAR1", (".parquet",)),
    "a Zstandard archive": (b"\x28\xb5\x2f\xfd", (".zst",)),
    "a bzip2 archive": (b"BZh", (".bz2",)),
    "an xz archive": (b"\xfd7zXZ", (".xz",)),
}
_WEIGHTS = (".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt", ".safetensors", ".gguf", ".npy", ".npz")
_SAMPLE_BYTES = 4096


def _not_text(start: bytes, source: Source) -> tuple[str, str] | None:
    """The format of a file that begins with `start` ("is a gzip archive, not text"), and a hint. None: may be text."""
    suffix = source.path.suffix.lower()
    is_ascii = start.isascii() and b"\0" not in start
    for name, (magic, suffixes) in _PACKED.items():
        if suffix in suffixes or (start.startswith(magic) and not is_ascii):
            return f"is {name}, not text", "Unpack it first and name the text file."
    if suffix in _WEIGHTS:
        return f"is a data file ({suffix}), not text", _NAME_A_TEXT
    if encoding := _wide_encoding(start):
        return f"is {encoding[:6]} text, not UTF-8", f"Convert it: {_conversion(source, encoding)}"
    return _BINARY if b"\0" in start else None


def _conversion(source: Source, encoding: str) -> str:
    """The command that converts a source from another encoding to UTF-8."""
    if source.descriptor is not None:
        return f"pipe it through iconv -f {encoding} -t UTF-8"
    new = source.path.with_name(f"{source.path.stem}-utf8{source.path.suffix}")
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(_operand(source.path))} > {shlex.quote(str(new))}"


def _operand(path: Path) -> str:
    """The path as another command takes it, with ./ before a dash."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def _wide_encoding(start: bytes) -> str:
    """The encoding of UTF-16 or UTF-32 text, or "".

    Without a byte-order mark, UTF-16 of mostly Latin text has a NUL in every second byte, and none in the others.
    """
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    sample = start[:_SAMPLE_BYTES]
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if len(sample) >= 4 and odd > 0.4 * (len(sample) // 2) and even == 0:
        return "UTF-16LE"
    if len(sample) >= 4 and even > 0.4 * (len(sample) // 2) and odd == 0:
        return "UTF-16BE"
    return ""
