"""Readers of file formats: functions from a source to its documents.

A reader yields the documents of a source in the same order each time. A document is an iterator of non-empty pieces of
text, which the caller exhausts before asking for the next document. The reader calls `on_bytes` with the number of
bytes that it has read. To add a format, write a module like `plain_text` and add its suffix to `READERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gptcli.dataset import plain_text
from gptcli.dataset.sources import OnBytes, Source

Reader = Callable[[Source, OnBytes], Iterator[Iterator[str]]]

READERS: dict[str, Reader] = {}
"""Readers by file name suffix (".jsonl", in lower case). Every other source is plain text."""


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The documents of a source, each in pieces. Raises CorpusError."""
    return READERS.get(source.path.suffix.lower(), plain_text.read_documents)(source, on_bytes)
