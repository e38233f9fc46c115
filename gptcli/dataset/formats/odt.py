"""The reader of OpenDocument text (.odt): a paragraph is a line, a tab separates the cells of a table, notes come last.

Comments, tracked deletions, headers and footers are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from gptcli.dataset.formats.archive import opened_archive
from gptcli.dataset.formats.library_errors import refusing
from gptcli.dataset.formats.text_flow import TextFlow
from gptcli.dataset.formats.xml_events import elements, parse_xml
from gptcli.dataset.sources import OnBytes, Source

_CONTENT = "content.xml"
_MANIFEST = "META-INF/manifest.xml"
_SKIPPED = {"annotation", "tracked-changes", "note-citation", "title", "desc", "forms", "binary-data", "scripts"}
_MAX_SPACES = 1000
"""Spaces that one element stands for; it names a number of any size."""


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The reader of OpenDocument text (see `readers`): the file is one document. Raises CorpusError."""
    yield _text(source, on_bytes)


def _text(source: Source, on_bytes: OnBytes) -> Iterator[str]:
    hint = "Open it in LibreOffice and save it again as .odt, without a password."
    with refusing(source, "an OpenDocument text", hint), opened_archive(source, on_bytes) as archive:
        if _MANIFEST in archive and "encryption-data" in dict(elements(archive.read(_MANIFEST))):
            raise ValueError("it is protected by a password")
        content = _OpenDocumentText()
        for _ in parse_xml(archive.read(_CONTENT), content):
            if text := content.body.take():
                yield text
        if text := content.body.finish() + content.notes.finish():
            yield text


class _OpenDocumentText:
    """Writes the text of OpenDocument (ISO 26300, part 1, 5 and 6) to two flows: the body and the notes."""

    def __init__(self) -> None:
        self.body, self.notes = TextFlow(), TextFlow()
        self._flow = self.body
        self._skipped = self._paragraphs = self._cells = 0
        """Depth inside skipped elements, paragraphs and table cells."""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._skipped or tag in _SKIPPED:
            self._skipped += 1
            return
        match tag:
            case "p" | "h":
                self._paragraphs += 1
                if not self._cells:
                    self._flow.end_line()
            case "note-body":
                self._flow = self.notes
            case "s":
                count = attributes.get("c", "1")
                self._flow.add_exactly(" " * min(int(count), _MAX_SPACES))
            case "tab":
                self._flow.add_exactly("\t")
            case "line-break":
                self._flow.add_break()
            case "table-cell" | "covered-table-cell":
                self._cells += 1

    def end(self, tag: str) -> None:
        if self._skipped:
            self._skipped -= 1
            return
        match tag:
            case "p" | "h":
                self._paragraphs -= 1
                if self._cells:
                    self._flow.add(" ")
                else:
                    self._flow.add_break()
            case "note-body":
                self._flow = self.body
            case "table-cell" | "covered-table-cell":
                self._cells -= 1
                self._flow.end_cell()
            case "table-row":
                self._flow.end_line()

    def data(self, text: str) -> None:
        if self._paragraphs and not self._skipped:
            self._flow.add(text)
