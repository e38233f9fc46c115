"""The reader of HTML: the text of the body, with line breaks at block elements.

Scripts, styles, forms' controls and navigation are left out. lxml parses it, since its parser repairs missing and wrong
tags as browsers do, in a stream and of any depth. The parser of the standard library does not repair, and its time can
grow with the square of the file's size.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

from gptcli.dataset.formats.charsets import codec_of
from gptcli.dataset.formats.library_errors import refusing, require_package
from gptcli.dataset.formats.text_flow import TextFlow
from gptcli.dataset.plain_text import read_text
from gptcli.dataset.sources import OnBytes, Source, chunks

_SKIPPED = {
    *("head", "script", "style", "noscript", "template", "nav", "menu", "svg", "canvas", "iframe", "object", "audio"),
    *("video", "map", "select", "datalist", "button", "textarea", "dialog", "rp", "rt"),
}
_SKIPPED_ROLES = {"navigation", "search", "menu", "menubar", "toolbar", "dialog"}
_PARAGRAPHS = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "ul", "ol", "dl", "table", "figure", "hr"}
_LINES = {
    *("address", "article", "aside", "body", "caption", "center", "dd", "details", "div", "dt", "fieldset"),
    *("figcaption", "footer", "form", "header", "html", "legend", "li", "main", "section", "summary", "tbody"),
    *("tfoot", "thead", "tr"),
}
_EXACT = {"pre", "listing", "xmp"}
"""Elements whose white space is kept."""
_DECLARED_WITHIN = 4096
"""Bytes in which a file names its encoding. Browsers look at 1,024, which some files exceed."""
_DECLARED = re.compile(
    rb"""<(?:meta\b[^>]*?\bcharset|\?xml\b[^>]*?\bencoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE
)


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The reader of HTML (see `readers`): the file is one document. Raises CorpusError."""
    yield _text(source, on_bytes)


def _text(source: Source, on_bytes: OnBytes) -> Iterator[str]:
    require_package("lxml", source)
    with refusing(source, "HTML", "Open it in a browser and save it again."):
        yield from html_text(_decoded(source, on_bytes))


def html_text(pieces: Iterable[str]) -> Iterator[str]:
    """The text of an HTML page in pieces. Needs lxml."""
    from lxml import etree

    handler = HtmlText(TextFlow())
    parser = etree.HTMLParser(target=handler)
    for piece in pieces:
        parser.feed(piece)
        if text := handler.flow.take():
            yield text
    try:
        parser.close()
    except etree.XMLSyntaxError:
        assert not handler.has_begun  # an empty file, or a comment alone
    if text := handler.flow.finish():
        yield text


class HtmlText:
    """Writes the text of HTML to a flow, from the events of a parser. Every element that starts must end."""

    def __init__(self, flow: TextFlow) -> None:
        self.flow = flow
        self.has_begun = False
        self._skipped = self._exact = 0
        """Depth inside skipped and preformatted elements."""
        self._is_first = False
        """Whether the next text begins a preformatted element: its first line end does not count."""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.has_begun = True
        hidden = "hidden" in attributes or attributes.get("role") in _SKIPPED_ROLES
        if self._skipped or tag in _SKIPPED or hidden:
            self._skipped += 1
            return
        self._break_at(tag)
        if tag in _EXACT:
            self._exact += 1
            self._is_first = True

    def end(self, tag: str) -> None:
        if self._skipped:
            self._skipped -= 1
            return
        if tag in _EXACT:
            self._exact -= 1
        if tag in ("td", "th"):
            self.flow.end_cell()
        elif tag == "br":
            self.flow.add_break()
        else:
            self._break_at(tag)

    def data(self, text: str) -> None:
        if self._skipped:
            return
        if self._exact:
            self.flow.add_exactly(text.removeprefix("\n") if self._is_first else text)
        else:
            self.flow.add(text)
        self._is_first = False

    def close(self) -> None:
        """What a parser of lxml returns at its end."""

    def _break_at(self, tag: str) -> None:
        if tag in _PARAGRAPHS:
            self.flow.end_paragraph()
        elif tag in _LINES:
            self.flow.end_line()


def codec_of_page(start: bytes) -> str:
    """The codec of an HTML page: that of its byte-order mark, the one that it names near its start, or UTF-8."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    declared = _DECLARED.search(start[:_DECLARED_WITHIN])
    name = declared[1].decode() if declared else "utf-8"
    codec = codec_of(name)
    if codec is None:
        raise ValueError(f"its encoding '{name[:100]}' is unknown")
    is_utf8 = codec.startswith("utf") or start.startswith(codecs.BOM_UTF8)  # it was read as ASCII, so it is not UTF-16
    return "utf-8-sig" if is_utf8 else codec


def _decoded(source: Source, on_bytes: OnBytes) -> Iterator[str]:
    """The characters of an HTML file."""
    codec = codec_of_page(next(chunks(source), b""))
    if codec == "utf-8-sig":
        yield from read_text(source, on_bytes)
        return
    decoder = codecs.getincrementaldecoder(codec)()
    for chunk in chunks(source, on_bytes):
        yield decoder.decode(chunk)
    yield decoder.decode(b"", final=True)
