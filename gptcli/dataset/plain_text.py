"""The reader of plain text: strict UTF-8, one document for each file.

A file that cannot be text is refused with one sentence that says what it is: an archive, weights, UTF-16, binary data.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from dataclasses import dataclass

from gptcli.dataset.sources import OnBytes, Source, chunks, opened
from gptcli.errors import CorpusError

_UTF8_BOM = codecs.BOM_UTF8


class NotTextError(CorpusError):
    """A file that is not text at all, as opposed to text in another encoding."""


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The reader (see `readers`): the whole file is one document."""
    yield read_text(source, on_bytes)


def read_text(source: Source, on_bytes: OnBytes) -> Iterator[str]:
    """The text of a file in non-empty pieces of about 128 kB, without its byte-order mark.

    Raises CorpusError, with the byte offset and the line, at the first byte that is not UTF-8, and NotTextError for
    content that is not text at all.
    """
    offset, carried = 0, b""  # carried: the start of a character whose end is in the next chunk
    for chunk in chunks(source):
        problem = not_text(chunk, source.path.suffix) if offset == 0 else _BINARY if b"\0" in chunk else None
        if problem:
            raise NotTextError(f"{source.label} {problem.what}.", problem.hint)
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
        "If it is Latin-1, convert it: iconv -f ISO-8859-1 -t UTF-8 OLD > NEW.",
    )


@dataclass(frozen=True)
class NotText:
    """The format of a file that is not UTF-8 text ("is a gzip archive"), and what to do."""

    what: str
    hint: str


_BINARY = NotText("is a binary file, not text (it has NUL bytes)", "Name a text file in UTF-8.")
_UNPACK = "Unpack it first and name the text file."
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


def not_text(start: bytes, suffix: str) -> NotText | None:
    """The format of a file that begins with `start`, if it is not text; None if it may be text."""
    suffix = suffix.lower()
    for name, (magic, suffixes) in _PACKED.items():
        if suffix in suffixes or (start.startswith(magic) and not _is_ascii(start)):
            return NotText(f"is {name}, not text", _UNPACK)
    if suffix in _WEIGHTS:
        return NotText(f"is a data file ({suffix}), not text", "Name a text file in UTF-8.")
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return NotText("is UTF-32 text, not UTF-8", "Convert it: iconv -f UTF-32 -t UTF-8 OLD > NEW.")
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return NotText("is UTF-16 text, not UTF-8", "Convert it: iconv -f UTF-16 -t UTF-8 OLD > NEW.")
    if encoding := _utf16_without_mark(start[:_SAMPLE_BYTES]):
        return NotText("is UTF-16 text, not UTF-8", f"Convert it: iconv -f {encoding} -t UTF-8 OLD > NEW.")
    return _BINARY if b"\0" in start else None


def _utf16_without_mark(sample: bytes) -> str:
    """The encoding of UTF-16 without a byte-order mark, or "".

    UTF-16 of mostly Latin text has a NUL in every second byte, and none in the others.
    """
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if len(sample) >= 4 and odd > 0.4 * (len(sample) // 2) and even == 0:
        return "UTF-16LE"
    if len(sample) >= 4 and even > 0.4 * (len(sample) // 2) and odd == 0:
        return "UTF-16BE"
    return ""


def _is_ascii(data: bytes) -> bool:
    return data.isascii() and b"\0" not in data
