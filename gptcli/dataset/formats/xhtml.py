"""The reader of XHTML (.xhtml), which is also the format of the chapters of an EPUB.

It is read as XML: for an HTML parser, an empty <script/> would begin a script without an end. XHTML that is not
well-formed is read as HTML.
"""

from __future__ import annotations

import html.entities
import re
from collections.abc import Iterable, Iterator
from xml.parsers.expat import ExpatError

from gptcli.dataset.formats.html import HtmlText, codec_of_page, html_text
from gptcli.dataset.formats.library_errors import refusing, require_package
from gptcli.dataset.formats.text_flow import TextFlow
from gptcli.dataset.formats.xml_events import parse_xml
from gptcli.dataset.sources import CHUNK_BYTES, OnBytes, Source, chunks
from gptcli.errors import size

MAX_BYTES = 64 << 20
"""Size of a page or chapter, which is in memory as a whole."""
_NAMED_ENTITY = re.compile(r"&(\w+;)")
_CHARACTERS = {name: text for name, text in html.entities.html5.items() if not set(text) & set("&<>\"'")}
"""Characters by the names that HTML has for them ("nbsp;"), without those that are part of XML."""


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The reader of XHTML (see `readers`): the file is one document. Raises CorpusError."""
    yield _text(source, on_bytes)


def _text(source: Source, on_bytes: OnBytes) -> Iterator[str]:
    with refusing(source, "XHTML", "Open it in a browser and save it again as .html."):
        if text := xhtml_text(chunks(source, on_bytes), source):
            yield text


def xhtml_text(pieces: Iterable[bytes], source: Source) -> str:
    """The text of a page. Raises MissingExtraError for one that is not well-formed, if lxml is not installed."""
    content = bytearray()
    for piece in pieces:
        content += piece
        if len(content) > MAX_BYTES:
            raise ValueError(f"it has a page of more than {size(MAX_BYTES)}")
    page = content.decode(codec_of_page(bytes(content[:CHUNK_BYTES])))
    handler = HtmlText(TextFlow())
    try:
        for _ in parse_xml([_without_named_entities(page).encode()], handler, encoding="utf-8"):
            pass
        return handler.flow.finish()
    except ExpatError:
        require_package("lxml", source)
        return "".join(html_text([page]))


def _without_named_entities(page: str) -> str:
    """XHTML with characters for &nbsp; and the like, whose names XML does not know."""
    return _NAMED_ENTITY.sub(lambda match: _CHARACTERS.get(match[1], match[0]), page)
