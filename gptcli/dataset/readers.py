"""Readers of file formats: functions from a source to its documents.

A reader yields the documents of a source in the same order each time. A document is an iterator of non-empty pieces of
text, which the caller exhausts before asking for the next document. The reader calls `on_bytes` with the number of
bytes that it has read; `source.settings` says how to read them. To add a format, write a module like
`formats/html.py`, or for rows a function like those in `rows`, and add its suffix to `READERS`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from itertools import chain

from gptcli.config import DataConfig
from gptcli.dataset import plain_text
from gptcli.dataset.compression import COMPRESSIONS
from gptcli.dataset.formats import discord, docx, epub, html, mail, odt, pdf, telegram, whatsapp, xhtml
from gptcli.dataset.recognizing import format_of_content
from gptcli.dataset.rows.documents import row_reader
from gptcli.dataset.rows.json_values import read_array, read_lines
from gptcli.dataset.rows.parquet import read_parquet
from gptcli.dataset.rows.table import read_csv, read_tsv
from gptcli.dataset.separating import separated
from gptcli.dataset.sources import OnBytes, Source
from gptcli.dataset.token_files import TOKEN_FORMATS
from gptcli.errors import ConfigError, CorpusError

Reader = Callable[[Source, OnBytes], Iterator[Iterator[str]]]

READERS: dict[str, Reader] = {
    ".jsonl": row_reader(read_lines),
    ".ndjson": row_reader(read_lines),
    ".json": row_reader(read_array),
    ".csv": row_reader(read_csv),
    ".tsv": row_reader(read_tsv),
    ".parquet": row_reader(read_parquet),
    ".docx": docx.read_documents,
    ".odt": odt.read_documents,
    ".epub": epub.read_documents,
    ".html": html.read_documents,
    ".htm": html.read_documents,
    ".xhtml": xhtml.read_documents,
    ".pdf": pdf.read_documents,
    ".eml": mail.read_message,
    ".mbox": mail.read_mailbox,
}
"""Readers by file name suffix, in lower case. Every other source is plain text."""

TEXT = "text"
TEXT_SUFFIXES = (".txt", ".text", ".md", ".markdown", ".rst", ".org", ".adoc", ".asciidoc", ".tex")
"""Suffixes of plain text that is read from folders by default."""

CHATS: dict[str, list[tuple[str, Callable[[Source], bool], Reader]]] = {
    ".txt": [("whatsapp", whatsapp.recognizes, whatsapp.read_documents)],
    ".json": [
        ("telegram", telegram.recognizes, telegram.read_documents),
        ("discord", discord.recognizes, discord.read_documents),
    ],
}
"""Readers of chat exports by suffix: the format's name, and the function that recognizes its files by their content."""


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The documents of a source, each in pieces. Raises CorpusError."""
    kind, settings = format_of(source), source.settings
    documents = _reader_of(kind)(source, on_bytes)
    if settings.newline == "lf":
        documents = map(_with_line_feeds, documents)
    if settings.doc_separator and kind == TEXT:
        documents = (part for pieces in documents for part in separated(pieces, settings.doc_separator))
    return documents


def format_of(source: Source) -> str:
    """The format of a source: a suffix of `READERS` without its dot, a name of `CHATS`, or "text"."""
    if source.settings.format != "auto":
        return source.settings.format
    source.findings.format = source.findings.format or _recognized(source)
    return source.findings.format


def has_documents(source: Source) -> bool:
    """Whether one source may hold many documents, rather than be one."""
    return format_of(source) != TEXT or source.settings.doc_separator is not None


def folder_patterns() -> list[str]:
    """The file name patterns that are read from folders by default."""
    return [f"*{suffix}{packed}" for suffix in (*TEXT_SUFFIXES, *READERS) for packed in ("", *COMPRESSIONS)]


def require_format(data: DataConfig) -> None:
    """Raise ConfigError for a format that no reader has."""
    if data.format in TOKEN_FORMATS:
        message = f"`data.format = {data.format}` is a format of tokens, not of text."
        raise ConfigError(message, "Make a dataset of them first, with `gptcli tokenize` (docs/data.md).")
    formats = ["auto", TEXT, *_readers()]
    if data.format not in formats:
        raise ConfigError(f"`data.format` cannot be '{data.format}'.", f"Use one of {', '.join(formats)}.")


def _reader_of(kind: str) -> Reader:
    """The reader of a format: that of plain text for one that no other reads."""
    if kind == TEXT:
        return plain_text.read_documents
    return READERS.get(f".{kind}") or _readers().get(kind, plain_text.read_documents)


def _readers() -> dict[str, Reader]:
    """All readers by the name of their format."""
    by_suffix = {suffix.removeprefix("."): reader for suffix, reader in READERS.items()}
    return by_suffix | {name: reader for chats in CHATS.values() for name, _, reader in chats}


def _recognized(source: Source) -> str:
    """The format of a source by its suffix; that of chats and of standard input by the content."""
    is_unnamed = source.descriptor is not None
    for name, recognizes, _ in chain(*CHATS.values()) if is_unnamed else CHATS.get(source.suffix, ()):
        try:
            if recognizes(source):
                return name
        except CorpusError:  # its reader says what is wrong
            break
    if source.suffix in READERS:
        return source.suffix.removeprefix(".")
    return (is_unnamed and format_of_content(source)) or TEXT


def _with_line_feeds(pieces: Iterator[str]) -> Iterator[str]:
    """The pieces with LF instead of CRLF and CR."""
    decoder = io.IncrementalNewlineDecoder(None, translate=True)
    for piece in pieces:
        if text := decoder.decode(piece):
            yield text
    if text := decoder.decode("", final=True):
        yield text
