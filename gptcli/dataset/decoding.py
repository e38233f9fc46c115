"""Bytes to text: the encoding of a source, and errors that say where it is another one and how to read that."""

from __future__ import annotations

import codecs
import shlex
from collections.abc import Iterator

from gptcli.dataset.refusals import MissingExtraError, UndecodableError
from gptcli.dataset.sources import CHUNK_BYTES, OnBytes, Source, chunks, first_bytes

_MARK = "\ufeff"
_SAMPLE_BYTES = 1 << 20
"""Bytes from which an unknown encoding is guessed."""
_NAMES = {"cp1252": "Windows-1252", "latin-1": "Latin-1"}
_UNDEFINED_IN_CP1252 = frozenset(b"\x81\x8d\x8f\x90\x9d")


def decoded(source: Source, on_bytes: OnBytes) -> Iterator[str]:
    """The text of a source in non-empty pieces of about 128 kB, without its byte-order mark.

    Raises UndecodableError, with the byte offset and the line, at the first byte that is not of the encoding, unless
    `data.errors` says otherwise. Notes the encoding and the number of errors in the source's findings.
    """
    encoding = _encoding_of(source)
    decoder, offset, is_first = codecs.getincrementaldecoder(encoding)(), 0, True
    source.findings.undecodable, source.findings.has_mark, source.findings.is_decoded = 0, False, True
    for chunk in _with_end(chunks(source, on_bytes)):
        text = _decode(decoder, chunk, source, offset, encoding)
        offset += len(chunk)
        if text and is_first:
            source.findings.has_mark, is_first = text.startswith(_MARK), False
            text = text.removeprefix(_MARK)
        if text:
            yield text


def _encoding_of(source: Source) -> str:
    """The codec that decodes a source. Python's utf-16 and utf-32 need a byte-order mark; ours do not."""
    encoding = source.settings.encoding
    if encoding == "auto":
        encoding = source.findings.encoding = detected(source)
    if encoding in ("utf-16", "utf-32"):
        start = first_bytes(source)
        if not start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)):
            is_big = wide_encoding(start) == "utf-16-be" or (encoding == "utf-32" and start[:1] == b"\0")
            return f"{encoding}-{'be' if is_big else 'le'}"
    return encoding


def detected(source: Source) -> str:
    """The encoding of a source, guessed from its first bytes beyond ASCII; utf-8 where that fits them."""
    sample = b""
    for chunk in chunks(source):
        if sample or not chunk.isascii() or b"\0" in chunk:
            sample += chunk
        if len(sample) >= _SAMPLE_BYTES:
            break
    try:
        if not wide_encoding(sample):
            codecs.utf_8_decode(sample, "strict", len(sample) < _SAMPLE_BYTES)
            return "utf-8"
    except UnicodeDecodeError:
        pass
    if wide := wide_encoding(sample):
        return wide
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        raise MissingExtraError(source.label, "data") from None
    best = from_bytes(sample[:_SAMPLE_BYTES]).best()
    return codecs.lookup(best.encoding).name if best else "cp1252"


def wide_encoding(start: bytes) -> str:
    """The encoding of text in UTF-16 or UTF-32 that begins with `start`, or "".

    Without a byte-order mark, UTF-16 of mostly Latin text has a NUL in every second byte, and none in the others.
    """
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = start[:4096]
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if len(sample) >= 4 and odd > 0.4 * (len(sample) // 2) and even == 0:
        return "utf-16-le"
    if len(sample) >= 4 and even > 0.4 * (len(sample) // 2) and odd == 0:
        return "utf-16-be"
    return ""


def _with_end(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces, then an empty one."""
    yield from pieces
    yield b""


def _decode(decoder: codecs.IncrementalDecoder, chunk: bytes, source: Source, offset: int, encoding: str) -> str:
    """The text of the next chunk. The fast path is strict; only a chunk with an error is decoded again."""
    is_last = not chunk
    state = decoder.getstate()
    try:
        return decoder.decode(chunk, is_last)
    except UnicodeError as error:  # some codecs do not say where the wrong byte is
        place = max(0, offset - len(state[0]) + getattr(error, "start", 0))
        if source.settings.errors == "strict":
            raise _undecodable(source, place, encoding) from None
    texts = {}
    for errors in ("ignore", "replace"):
        decoder.setstate(state)
        decoder.errors = errors
        try:
            texts[errors] = decoder.decode(chunk, is_last)
        except UnicodeError:
            raise _undecodable(source, place, encoding) from None
    decoder.errors = "strict"
    source.findings.undecodable += texts["replace"].count("\ufffd") - texts["ignore"].count("\ufffd")
    return texts["ignore" if source.settings.errors == "skip" else "replace"]


def _undecodable(source: Source, offset: int, encoding: str) -> UndecodableError:
    """The error for the byte at `offset`. Its line is counted only now, so that valid text costs nothing."""
    line, left, sample = 1, offset, b""
    for chunk in chunks(source):
        if sample:
            sample += chunk
            break
        if left < len(chunk):
            line += chunk.count(b"\n", 0, left)
            sample = chunk[left:]
            continue
        line += chunk.count(b"\n")
        left -= len(chunk)
    name = {"utf-8": "UTF-8"}.get(encoding, encoding)
    likely = _likely_encoding(sample[:CHUNK_BYTES]) if encoding == "utf-8" else ""
    return UndecodableError(
        f"{source.label} is not {name} text: byte 0x{sample[:1].hex().upper()} at offset {offset:,}, line {line:,}.",
        _hint(likely),
        f"If it is {_NAMES.get(likely, 'Latin-1')}, convert it: {conversion(source, likely or 'latin-1')}",
    )


def conversion(source: Source, encoding: str) -> str:
    """The command that converts a source from another encoding to UTF-8."""
    encoding = {"latin-1": "ISO-8859-1", "cp1252": "CP1252"}.get(encoding, encoding.upper())
    if source.descriptor is not None:
        return f"pipe it through iconv -f {encoding} -t UTF-8"
    old, new = source.path, source.path.with_name(f"{source.path.stem}-utf8{source.path.suffix}")
    operand = f"./{old}" if str(old).startswith("-") else str(old)  # else iconv takes it for an option
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(operand)} > {shlex.quote(str(new))}"


def _likely_encoding(sample: bytes) -> str:
    """The encoding of text whose first byte is not UTF-8; "" where most of the rest is, or where several may be."""
    high = {byte for byte in sample if byte >= 0x80}
    known = sample.decode("utf-8", "ignore")
    wrong = sum(byte >= 0x80 for byte in sample) - sum(len(c.encode()) for c in known if c > "\x7f")
    if sum(c > "\x7f" for c in known) > wrong or (min(high) < 0xA0 and high & _UNDEFINED_IN_CP1252):
        return ""
    return "cp1252" if min(high) < 0xA0 else "latin-1"


def _hint(likely: str) -> str:
    replace = "replace what cannot be decoded with `data.errors = replace`"
    if not likely:
        return f"Let `data.encoding = auto` find its encoding, or {replace}."
    return f"If it is {_NAMES[likely]}, read it with `data.encoding = {likely}`; or {replace}."
