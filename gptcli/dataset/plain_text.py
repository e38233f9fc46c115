"""The reader of plain text: one document for each file.

The error for a file of another kind names it: an archive, weights, UTF-16, binary data.
"""

from __future__ import annotations

from collections.abc import Iterator

from gptcli.dataset.decoding import conversion, decoded, wide_encoding
from gptcli.dataset.refusals import NotTextError, UndecodableError
from gptcli.dataset.sources import OnBytes, Source, first_bytes


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The reader of plain text (see `readers`): the whole file is one document."""
    yield read_text(source, on_bytes)


def read_text(source: Source, on_bytes: OnBytes) -> Iterator[str]:
    """The text of a source in non-empty pieces of about 128 kB, without its byte-order mark.

    Raises UndecodableError for text in another encoding (see `decoded`), and NotTextError for content that is not text.
    """
    start = first_bytes(source)
    if source.settings.encoding == "utf-8" and (wide := wide_encoding(start)):
        message = f"{source.label} is {wide[:6].upper()} text, not UTF-8."
        convert = f"Convert it: {conversion(source, wide)}"
        raise UndecodableError(message, f"Read it with `data.encoding = {wide[:6]}`.", convert)
    if problem := _not_text(start, source.suffix, source.settings.encoding):
        what, hint = problem
        raise NotTextError(f"{source.label} {what}.", hint)
    for text in decoded(source, on_bytes):
        if "\0" in text:
            what, hint = _BINARY
            raise NotTextError(f"{source.label} {what}.", hint)
        yield text


_NAME_A_TEXT = "Name a text file."
_BINARY = "is a binary file, not text (it has NUL bytes)", _NAME_A_TEXT
_PACKED = {
    "a gzip archive": (b"\x1f\x8b", (".tgz",)),
    "a zip archive": (b"PK\x03\x04", (".zip",)),
    "a Parquet file": (b"PAR1", (".parquet",)),
    "a Zstandard archive": (b"\x28\xb5\x2f\xfd", ()),
    "a bzip2 archive": (b"BZh", ()),
    "an xz archive": (b"\xfd7zXZ", ()),
}
_WEIGHTS = (".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt", ".safetensors", ".gguf", ".npy", ".npz")


def _not_text(start: bytes, suffix: str, encoding: str) -> tuple[str, str] | None:
    """The format of a file that begins with `start` ("is a gzip archive, not text"), and a hint. None: may be text."""
    is_ascii = start.isascii() and b"\0" not in start
    for name, (magic, suffixes) in _PACKED.items():
        if suffix in suffixes or (start.startswith(magic) and not is_ascii):
            return f"is {name}, not text", "Unpack it first and name the text file."
    if suffix in _WEIGHTS:
        return f"is a data file ({suffix}), not text", _NAME_A_TEXT
    return _BINARY if encoding == "utf-8" and b"\0" in start else None
