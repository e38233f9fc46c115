"""From sources to documents: the reader of each file format.

A reader is a function. From a source it gives one document after another, each as an iterator of non-empty pieces of
text, to be read to its end before the next one is asked for; it calls `on_bytes` with the bytes of the source that it
has read. The same source gives the same documents each time. To add a format, write a module with such a function (see
`plain_text`) and add its suffix to `READERS`.
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
