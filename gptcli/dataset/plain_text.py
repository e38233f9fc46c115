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
    if problem := _not_text(start, source):
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
_OFFICE = {
    "a Word document in the old format": ((".doc", ".dot"), "Open it in Word or LibreOffice and save it as .docx."),
    "a spreadsheet": (
        (".xlsx", ".xls", ".xlsm", ".ods"),
        "Open it in a spreadsheet program and save its sheet as .csv.",
    ),
    "a presentation": ((".pptx", ".ppt", ".odp"), "Open it in a presentation program and save it as PDF."),
    "a book for Kindle": ((".mobi", ".azw", ".azw3"), "Convert it with Calibre to .epub."),
}
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_RTF = b"{\\rtf"


def _not_text(start: bytes, source: Source) -> tuple[str, str] | None:
    """The kind of a source that begins with `start` ("is a gzip archive, not text"), and a hint. None: may be text."""
    suffix, encoding = source.suffix, source.settings.encoding
    is_ascii = start.isascii() and b"\0" not in start
    for name, (suffixes, hint) in _OFFICE.items():
        if suffix in suffixes and not is_ascii:
            return f"is {name}, not text", hint
    if start.startswith(_OLE):
        return "is a document in an old format of Word, Excel or PowerPoint, not text", "Save it as .docx, .csv or PDF."
    if start.startswith(_RTF) and source.settings.format == "auto":
        hint = "Open it in Word or LibreOffice and save it as .docx, or read its characters with `data.format = text`."
        return "is a document in Rich Text Format, not plain text", hint
    for name, (magic, suffixes) in _PACKED.items():
        if suffix in suffixes or (start.startswith(magic) and not is_ascii):
            return f"is {name}, not text", "Unpack it first and name the text file."
    if suffix in _WEIGHTS:
        tokens = "; a dataset of tokens is made by `gptcli tokenize` (docs/data.md)." if suffix == ".bin" else "."
        return f"is a data file ({suffix}), not text", f"{_NAME_A_TEXT[:-1]}{tokens}"
    return _BINARY if encoding == "utf-8" and b"\0" in start else None
