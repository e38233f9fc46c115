"""Word and OpenDocument: paragraphs, tables, notes, and what is left out."""

from __future__ import annotations

import io
import zipfile

import pytest

from gptcli.errors import CorpusError
from tests.dataset.formats import made
from tests.dataset.formats.conftest import Read


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(*inner: str) -> str:
    return f"<w:p>{''.join(inner)}</w:p>"


def test_paragraphs_of_a_word_document(read: Read) -> None:
    tabs = '<w:pPr><w:tabs><w:tab w:val="left" w:pos="1"/></w:tabs></w:pPr>'
    body = [
        paragraph(run("A&amp;B "), run("é€😀")),
        paragraph(),
        paragraph(tabs, run("one"), "<w:r><w:tab/></w:r>", run("two"), "<w:r><w:br/></w:r>", run("three")),
        paragraph("<w:hyperlink><w:r><w:t>a </w:t></w:r></w:hyperlink><w:r><w:t>non</w:t><w:noBreakHyphen/></w:r>"),
    ]
    assert read(made.docx("".join(body)), "a.docx") == ["A&B é€😀\n\none\ttwo\nthree\na non-\n"]


def test_changes_and_boxes_of_a_word_document(read: Read) -> None:
    """Insertions and content controls are text; deletions, fields and copies for old programs are not."""
    box = "<w:txbxContent>" + paragraph(run("box")) + "</w:txbxContent>"
    body = [
        paragraph("<w:ins>", run("new"), "</w:ins><w:del><w:r><w:delText>old</w:delText></w:r></w:del>"),
        paragraph(
            "<w:moveFrom>", run("moved"), "</w:moveFrom>", "<w:r><w:instrText>PAGE</w:instrText></w:r>", run("x")
        ),
        "<w:sdt><w:sdtContent>" + paragraph(run("control")) + "</w:sdtContent></w:sdt>",
        paragraph(f"<w:AlternateContent><w:Choice>{box}</w:Choice><w:Fallback>{box}</w:Fallback></w:AlternateContent>"),
    ]
    assert [line for line in read(made.docx("".join(body)), "a.docx")[0].split("\n") if line] == [
        *("new", "x", "control", "box")
    ]


def test_tables_and_notes_of_a_word_document(read: Read) -> None:
    def row(*cells: str) -> str:
        return "<w:tr>" + "".join(f"<w:tc><w:tcPr/>{cell}</w:tc>" for cell in cells) + "</w:tr>"

    rows = row(paragraph(run("a")), paragraph(run("b1")) + paragraph(run("b2"))) + row(paragraph(), paragraph(run("d")))
    notes = f'<w:footnote w:type="separator">{paragraph(run("---"))}</w:footnote><w:footnote>{paragraph(run("note"))}'
    content = made.docx(paragraph(run("text")) + f"<w:tbl>{rows}</w:tbl>", notes + "</w:footnote>")
    assert read(content, "a.docx") == ["text\na\tb1 b2\n\td\nnote\n"]


def test_the_text_of_a_word_document_may_have_another_name(read: Read) -> None:
    assert read(made.docx(paragraph(run("x")), part="word/document2.xml"), "A.DOCX") == ["x\n"]


def test_progress_covers_the_pictures_that_are_not_read(read: Read) -> None:
    with zipfile.ZipFile(io.BytesIO(made.docx(paragraph(run("x"))))) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    content = made.zipped({"a.png": bytes(1 << 20)} | files, zipfile.ZIP_STORED)
    assert read(content, "a.docx") == ["x\n"]


def test_an_opendocument_text(read: Read) -> None:
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
    note = (
        "<text:note><text:note-citation>1</text:note-citation>"
        "<text:note-body><text:p>the note</text:p></text:note-body></text:note>"
    )
    body = (
        "<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>"
        "<text:h>Title</text:h>\n  <text:p>a<text:s text:c='3'/>b <text:span>c\n d</text:span><text:tab/>e"
        f"<text:line-break/>f{note}, g<office:annotation><text:p>comment</text:p></office:annotation></text:p><text:p/>"
        f"<table:table><table:table-row>{cell.format(1)}{cell.format(2)}</table:table-row></table:table><text:p>z</text:p>"
    )
    assert read(made.odt(body), "a.odt") == ["Title\na   b c d\te\nf, g\n\n1\t2\nz\nthe note\n"]


def test_protected_documents_are_refused(read: Read) -> None:
    manifest = '<manifest xmlns="m"><file-entry full-path="content.xml"><encryption-data/></file-entry></manifest>'
    with pytest.raises(CorpusError, match="password"):
        read(made.odt("<text:p>x</text:p>", manifest), "a.odt")
    with pytest.raises(CorpusError, match="password"):
        read(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "a.docx")


def test_a_number_of_spaces_is_limited(read: Read) -> None:
    text = read(made.odt("<text:p>a<text:s text:c='999999999999'/>b</text:p>"), "a.odt")[0]
    assert len(text) < 10_000
