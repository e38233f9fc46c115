"""The reader of XHTML (.xhtml), which is also the format of the chapters of an EPUB.

It is read as XML: for an HTML parser, an empty <script/> would begin a script without an end. XHTML that is not
well-formed is read as HTML.
"""

from __future__ import annotations

import html.entities
import re
from collections.abc import Iterable, Iterator
from xml.parsers.expat import ExpatError

from gptcli.dataset.documents.charsets import codec_of
from gptcli.dataset.documents.html import HtmlText, declared_encoding, html_text
from gptcli.dataset.documents.refusals import refusing, require_package
from gptcli.dataset.documents.text_flow import TextFlow
from gptcli.dataset.documents.xml_events import parse_xml
from gptcli.dataset.sources import CHUNK_BYTES, OnBytes, Source, chunks
from gptcli.errors import size

MAX_BYTES = 64 << 20
"""Size of a page or chapter, which is in memory as a whole."""
_NAMED_ENTITY = re.compile(rb"&(\w+;)")
_XML_ENTITIES = {"amp;", "lt;", "gt;", "quot;", "apos;"}


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The reader of XHTML (see `readers`): the file is one document. Raises CorpusError."""
    yield _text(source, on_bytes)


def _text(source: Source, on_bytes: OnBytes) -> Iterator[str]:
    def reporting() -> Iterator[bytes]:
        for chunk in chunks(source):
            on_bytes(len(chunk))
            yield chunk

    with refusing(source, "XHTML", "Open it in a browser and save it again as .html."):
        if text := xhtml_text(reporting(), source):
            yield text


def xhtml_text(pieces: Iterable[bytes], source: Source) -> str:
    """The text of a page. Raises MissingExtraError for one that is not well-formed, if lxml is not installed."""
    content = bytearray()
    for piece in pieces:
        content += piece
        if len(content) > MAX_BYTES:
            raise ValueError(f"it has a page of more than {size(MAX_BYTES)}")
    handler = HtmlText(TextFlow())
    try:
        for _ in parse_xml([_without_named_entities(bytes(content))], handler):
            pass
        return handler.flow.finish()
    except ExpatError:
        require_package("lxml", source)
        codec = codec_of(declared_encoding(bytes(content[:CHUNK_BYTES]))) or "utf-8"
        return "".join(html_text([content.decode(codec)]))


def _without_named_entities(content: bytes) -> bytes:
    """XHTML with numbers for &nbsp; and the like, whose names XML does not know."""

    def numbered(match: re.Match[bytes]) -> bytes:
        name = match[1].decode("ascii")
        characters = "" if name in _XML_ENTITIES else html.entities.html5.get(name, "")
        return "".join(f"&#{ord(character)};" for character in characters).encode() or match[0]

    return _NAMED_ENTITY.sub(numbered, content)
