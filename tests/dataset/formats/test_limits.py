"""Documents that attack the reader: bombs, entities, deep nesting; and packages that are missing."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gptcli.dataset.formats import archive, library_errors, xml_events
from gptcli.dataset.refusals import MissingExtraError
from gptcli.errors import CorpusError
from tests.dataset.formats import made
from tests.dataset.formats.conftest import Read

PARAGRAPH = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"
ENTITIES = [
    '<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">',
    '<!ENTITY b SYSTEM "file:///etc/hostname">',
    '<!ENTITY % p SYSTEM "file:///etc/hostname"> %p;<!ENTITY b "x">',
]


def replaced(content: bytes, name: str, data: str | bytes) -> bytes:
    """A zip file with another file under this name."""
    with zipfile.ZipFile(io.BytesIO(content)) as whole:
        return made.zipped({file: whole.read(file) for file in whole.namelist()} | {name: data})


def test_a_bomb_is_refused_before_it_is_unpacked(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked = 0
    real = archive.Archive._check_size

    def counting(self: archive.Archive) -> None:
        nonlocal unpacked
        unpacked = self._unpacked
        real(self)

    monkeypatch.setattr(archive.Archive, "_check_size", counting)
    bomb = made.docx(PARAGRAPH.format("a" * (40 << 20)))
    with pytest.raises(CorpusError, match="200 times"):
        read(bomb, "a.docx")
    assert unpacked < 17 << 20


def test_the_limits_hold_for_all_files_of_a_book_together(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    book = made.epub({f"{number}.xhtml": made.chapter("a" * 100_000) for number in range(20)})
    assert len(read(book, "a.epub")[0]) > 2_000_000
    monkeypatch.setattr(archive, "MAX_UNPACKED", 1 << 20)
    with pytest.raises(CorpusError, match=r"unpacks to more than 1\.05 MB"):
        read(book, "a.epub")


@pytest.mark.parametrize("declared", ENTITIES)
def test_entities_are_refused(read: Read, declared: str) -> None:
    start = f"<!DOCTYPE x [{declared}]>"
    word = made.docx(PARAGRAPH.format("x"))
    hostile = f'{start}<w:document xmlns:w="{made.WORD}">{PARAGRAPH.format("&b;")}</w:document>'
    book = made.epub({"a.xhtml": f"{start}<html><body><p>&b;</p></body></html>"})
    for content, name in (
        (replaced(word, "word/document.xml", hostile), "a.docx"),
        (replaced(made.odt(""), "content.xml", f"{start}<text>&b;</text>"), "a.odt"),
        (book, "a.epub"),
    ):
        with pytest.raises(CorpusError, match="entities") as refusal:
            read(content, name)
        assert refusal.value.hint


def test_deep_nesting_and_endless_tags_are_refused(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = xml_events.MAX_DEPTH
    assert read(made.odt("<text:span>" * 200 + "<text:p>x</text:p>" + "</text:span>" * 200), "a.odt") == ["x\n"]
    with pytest.raises(CorpusError, match="nested"):
        read(made.odt("<text:span>" * deep + "<text:p>x</text:p>" + "</text:span>" * deep), "a.odt")
    monkeypatch.setattr(xml_events, "MAX_TAG_BYTES", 200_000)
    noise = bytes(range(32, 127)).replace(b'"', b"").replace(b"<", b"").replace(b"&", b"").decode() * 8_000
    with pytest.raises(CorpusError, match="tag of more than 200,000 bytes"):
        read(made.odt(f'<text:p style="{noise}">x</text:p>'), "a.odt")


def test_damaged_and_unusual_archives_are_refused(read: Read) -> None:
    whole = made.docx(PARAGRAPH.format("x" * 100))
    content = f'<w:document xmlns:w="{made.WORD}"/>'
    for damaged in (
        *(b"", b"PK", b"no zip file", whole[:-30], whole[: len(whole) // 2]),
        whole.replace(b"PK\x01\x02", b"PK\x01\x02" + b"\xff", 1),
        whole.replace(b"PK\x01\x02\x14\x03\x14", b"PK\x01\x02\x14\x03\xff", 1),
        made.zipped({"word/document.xml": content}),
        made.zipped({"_rels/.rels": "<x/>", "word/document.xml": content}),
        replaced(whole, "word/document.xml", content[:-5]),
        replaced(whole, "word/document.xml", f'<?xml version="1.0" encoding="rot13"?>{content}'),
        made.zipped({"_rels/.rels": b"<x/>"}, zipfile.ZIP_BZIP2),
    ):
        with pytest.raises(CorpusError, match=r"^'a\.docx' cannot be read as a Word document: .*\.$") as refusal:
            read(damaged, "a.docx")
        assert "Word" in refusal.value.hint


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.html", b"<p>x"),
        ("a.xhtml", b"<p>x"),
        ("a.epub", made.epub({"a.xhtml": "<p>x"})),
        ("a.eml", made.message("S", "", "<p>x</p>")),
        ("a.pdf", made.pdf(["x"])),
        ("a.json", made.discord({"content": "x", "author": {"name": "Anna"}})),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    read: Read, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes
) -> None:
    assert read(content, name)
    monkeypatch.setattr(library_errors, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=re.escape(f"'{name}'")) as refusal:
        read(content, name)
    assert "pip install 'gptcli[documents]'" in refusal.value.hint


def test_packages_are_imported_only_when_a_file_needs_them(tmp_path: Path) -> None:
    """Plain text, Word, OpenDocument, sound books and plain mail need none."""
    contents = {
        "a.txt": b"31.12.23, 21:15 - Anna: hello\n",
        "a.docx": made.docx(PARAGRAPH.format("x")),
        "a.odt": made.odt("<text:p>x</text:p>"),
        "a.epub": made.epub({"a.xhtml": made.chapter("<p>x</p>")}),
        "a.mbox": made.mbox(made.message("S", "x", "<p>x</p>")),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    script = f"""
import sys
from pathlib import Path
from gptcli.dataset.readers import read_documents
from gptcli.dataset.sources import Source
for name in {[str(tmp_path / name) for name in contents]}:
    texts = ["".join(pieces) for pieces in read_documents(Source(Path(name), name, name), lambda _: None)]
    assert all(texts) and len(texts) == 1
print(sorted(sys.modules.keys() & {{"lxml", "pypdf", "ijson"}}))
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
