"""The reader of Word documents (.docx): a paragraph is a line, a tab separates the cells of a table, notes come last.

python-docx is not used: it leaves out tracked insertions, content controls, text boxes and notes, and it unpacks and
keeps the whole document. Deleted text, comments, headers and footers are left out.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from gptcli.dataset.formats.archive import Archive, opened_archive
from gptcli.dataset.formats.library_errors import refusing
from gptcli.dataset.formats.text_flow import TextFlow
from gptcli.dataset.formats.xml_events import elements, parse_xml
from gptcli.dataset.sources import OnBytes, Source

_SKIPPED = {"del", "moveFrom", "Fallback", "pPr", "rPr", "sectPr"}
"""Deleted and moved text, the copy of a drawing for old programs, and properties."""
_SEPARATORS = {"separator", "continuationSeparator", "continuationNotice"}
_NOTES = ("footnotes.xml", "endnotes.xml")


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The reader of Word documents (see `readers`): the file is one document. Raises CorpusError."""
    yield _text(source, on_bytes)


def _text(source: Source, on_bytes: OnBytes) -> Iterator[str]:
    hint = "Open it in Word or LibreOffice and save it again as .docx, without a password."
    with refusing(source, "a Word document", hint), opened_archive(source, on_bytes) as archive:
        flow = TextFlow()
        main = _main_part(archive)
        notes = [posixpath.join(posixpath.dirname(main), name) for name in _NOTES]
        for part in [main, *(name for name in notes if name in archive)]:
            for _ in parse_xml(archive.read(part), _WordText(flow)):
                if text := flow.take():
                    yield text
        if text := flow.finish():
            yield text


def _main_part(archive: Archive) -> str:
    """The name of the file with the text, usually word/document.xml."""
    for tag, attributes in elements(archive.read("_rels/.rels")):
        if tag == "Relationship" and attributes.get("Type", "").endswith("/officeDocument"):
            return attributes.get("Target", "").lstrip("/")
    raise ValueError("it has no text part")


class _WordText:
    """Writes the text of WordprocessingML (ECMA-376, part 1, 17.2 to 17.4) to a flow."""

    def __init__(self, flow: TextFlow) -> None:
        self._flow = flow
        self._skipped = 0
        """Depth inside a skipped element."""
        self._cells = 0
        """Depth of table cells."""
        self._in_text = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        is_separator = tag in ("footnote", "endnote") and attributes.get("type") in _SEPARATORS
        if self._skipped or tag in _SKIPPED or is_separator:
            self._skipped += 1
            return
        match tag:
            case "t":
                self._in_text = True
            case "tab":
                self._flow.add_exactly("\t")
            case "br" | "cr":
                self._flow.add_break()
            case "noBreakHyphen":
                self._flow.add_exactly("-")
            case "tc":
                self._cells += 1
            case "p" if not self._cells:
                self._flow.end_line()

    def end(self, tag: str) -> None:
        if self._skipped:
            self._skipped -= 1
            return
        match tag:
            case "t":
                self._in_text = False
            case "p" if self._cells:
                self._flow.add(" ")
            case "p":
                self._flow.add_break()
            case "tc":
                self._cells -= 1
                self._flow.end_cell()
            case "tr":
                self._flow.end_line()

    def data(self, text: str) -> None:
        if self._in_text and not self._skipped:
            self._flow.add_exactly(text)
