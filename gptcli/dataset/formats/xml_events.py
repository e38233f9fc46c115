"""XML from anywhere as events. No entity is ever defined or fetched, and nesting is limited.

This is Python's own expat rather than a tree of elements: a document of any length takes little memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol
from xml.parsers import expat

from gptcli.dataset.formats.charsets import codec_of

MAX_DEPTH = 256
"""Nesting levels of elements."""
MAX_TAG_BYTES = 4 << 20
"""Bytes of a tag or comment: expat keeps one in memory, and reads its start again with each piece."""


class Handler(Protocol):
    """Receives the events. Names come without their namespace: <w:p> is "p"."""

    def start(self, tag: str, attributes: dict[str, str]) -> None: ...
    def end(self, tag: str) -> None: ...
    def data(self, text: str) -> None: ...


def parse_xml(pieces: Iterable[bytes], handler: Handler, encoding: str | None = None) -> Iterator[None]:
    """Pass the events of an XML file to the handler; yields after each piece.

    encoding: replaces the one that the file names. Raises ExpatError for XML that is not well-formed, and ValueError
    for entity declarations, unknown encodings and beyond the limits.
    """
    parser = expat.ParserCreate(encoding, namespace_separator=" ")
    parser.buffer_text = True
    depth = 0

    def begun(version: str, named: str | None, standalone: int) -> None:
        if named and not encoding and codec_of(named) is None:
            raise ValueError(f"the encoding '{named[:100]}' of its XML is unknown")

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"its XML is nested more than {MAX_DEPTH} levels deep")
        handler.start(_local(tag), {_local(name): value for name, value in attributes.items()})

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        handler.end(_local(tag))

    def declared(*_: object) -> None:
        raise ValueError("its XML declares entities, which such documents do not need")

    parser.XmlDeclHandler = begun
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = handler.data
    parser.EntityDeclHandler = declared
    given = 0
    for piece in pieces:
        parser.Parse(piece, False)
        given += len(piece)
        if given - parser.CurrentByteIndex > MAX_TAG_BYTES:
            raise ValueError(f"it has a tag of more than {MAX_TAG_BYTES:,} bytes")
        yield
    parser.Parse(b"", True)
    yield


def elements(pieces: Iterable[bytes]) -> Iterator[tuple[str, dict[str, str]]]:
    """The name and attributes of every element of an XML file. Raises as `parse_xml` does."""
    starts = _Starts()
    for _ in parse_xml(pieces, starts):
        yield from starts.found
        starts.found.clear()


class _Starts:
    """A handler that keeps the starts of elements."""

    def __init__(self) -> None:
        self.found: list[tuple[str, dict[str, str]]] = []

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.found.append((tag, attributes))

    def end(self, tag: str) -> None:
        pass

    def data(self, text: str) -> None:
        pass


def _local(name: str) -> str:
    return name.rpartition(" ")[2]
