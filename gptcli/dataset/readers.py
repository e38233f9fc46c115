"""Readers of file formats: functions from a source to its documents.

A reader yields the documents of a source in the same order each time. A document is an iterator of non-empty pieces of
text, which the caller exhausts before asking for the next document. The reader calls `on_bytes` with the number of
bytes that it has read. To add a format, write a module like `plain_text` and add its suffix to `READERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gptcli.dataset import plain_text
from gptcli.dataset.formats import discord, docx, epub, html, mail, odt, pdf, telegram, whatsapp, xhtml
from gptcli.dataset.sources import OnBytes, Source

Reader = Callable[[Source, OnBytes], Iterator[Iterator[str]]]

READERS: dict[str, Reader] = {
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
"""Readers by file name suffix (".jsonl", in lower case). Every other source is plain text."""

CHATS: dict[str, list[tuple[Callable[[Source], bool], Reader]]] = {
    ".txt": [(whatsapp.recognizes, whatsapp.read_documents)],
    ".json": [(telegram.recognizes, telegram.read_documents), (discord.recognizes, discord.read_documents)],
}
"""Readers of chat exports by suffix, each with the function that recognizes its files by their content."""


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The documents of a source, each in pieces. Raises CorpusError."""
    return reader_of(source)(source, on_bytes)


def reader_of(source: Source) -> Reader:
    """The reader of a source. Raises CorpusError if it must be opened for this and cannot be."""
    suffix = source.path.suffix.lower()
    for recognizes, read_chats in CHATS.get(suffix, ()):
        if recognizes(source):
            return read_chats
    return READERS.get(suffix, plain_text.read_documents)
