"""Recognising what people hand over by mistake: archives, weights, UTF-16, binary files."""

from __future__ import annotations

import codecs
from dataclasses import dataclass


@dataclass(frozen=True)
class NotText:
    """What a file is instead of UTF-8 text ("is a gzip archive"), and what to do."""

    what: str
    hint: str


BINARY = NotText("is a binary file, not text (it has NUL bytes)", "Name a text file in UTF-8.")

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
    """What a file that begins with `start` is, if not text; None if it may be text."""
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
    if b"\0" in start:
        return BINARY
    return None


def _utf16_without_mark(sample: bytes) -> str:
    """UTF-16 of mostly Latin text has a NUL in every second byte, and none in the others."""
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if len(sample) >= 4 and odd > 0.4 * (len(sample) // 2) and even == 0:
        return "UTF-16LE"
    if len(sample) >= 4 and even > 0.4 * (len(sample) // 2) and odd == 0:
        return "UTF-16BE"
    return ""


def _is_ascii(data: bytes) -> bool:
    return data.isascii() and b"\0" not in data
