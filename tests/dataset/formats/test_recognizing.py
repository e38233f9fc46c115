"""Standard input has no name, so that its format is recognized by its content, or it is plain text."""

from __future__ import annotations

import gzip
import io
import json

import pytest

from gptcli.errors import CorpusError
from tests.dataset.formats import made
from tests.dataset.test_sources import look_at

HELLO = made.message("Hello", "A text.\n")
CHAT = "".join(f"31.12.23, 21:15 - {name}: hello\n" for name in ("Anna", "Ben", "Anna", "Ben"))
TELEGRAM = made.telegram({"from": "Anna", "text": "hello"})
CONTENT: dict[str, list[bytes]] = {
    "docx": [made.docx("<w:p><w:r><w:t>A text.</w:t></w:r></w:p>")],
    "odt": [made.odt("<text:p>A text.</text:p>")],
    "epub": [made.epub({"a.xhtml": made.chapter("<p>A text.</p>")})],
    "html": [
        b"<html><body><p>A text.",
        b"\xef\xbb\xbf\n<!DOCTYPE HTML>\n<title>x</title><p>A text.",
        b"<!-- saved from a page -->\n<html lang=en><p>A text.",
    ],
    "xhtml": [made.chapter("<p>A text.</p>").encode()],
    "pdf": [made.pdf(["A text."])],
    "eml": [HELLO, b"Received: by x;\r\n\tSun, 31 Dec\r\nFrom: a@b.c\r\nSubject: x\r\n\r\nA text.\r\n"],
    "mbox": [made.mbox(HELLO, HELLO)],
    "whatsapp": [CHAT.encode()],
    "telegram": [json.dumps(TELEGRAM).encode(), json.dumps(TELEGRAM, indent=1).encode()],
    "discord": [made.discord({"author": {"name": "Anna"}, "content": "hello"})],
    "jsonl": [b'{"text": "A text."}\n'],
    "json": [b'[\n{"text": "A text."}]'],
    "text": [
        b"From: Anna\nSubject: a note\n\nA text.\n",
        b"From the Sun to the Mon is a way of 10:30 hours and 2024 miles.\n\nA text.\n",
        b"<p>A text.",
        b"In <html> a text.",
        b"<?xml version='1.0'?><book/>",
        CHAT.replace(" - ", " ").encode(),
    ],
}


@pytest.mark.parametrize(("kind", "content"), [(kind, one) for kind, several in CONTENT.items() for one in several])
def test_the_content_says_the_format(kind: str, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind in ("html", "pdf", "telegram", "discord"):
        pytest.importorskip({"html": "lxml", "pdf": "pypdf"}.get(kind, "ijson"))
    for packed in (content, gzip.compress(content)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed)))
        seen = look_at("-")
        assert seen.summary.formats == {kind: 1}
        assert any(f"read as {kind}: `data.format = text`" in note for note in seen.notes) == (kind != "text")
    if kind not in ("docx", "odt", "epub", "pdf"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        stated = look_at("-", format="text")
        assert stated.characters == len(content.decode("utf-8-sig")), "on request its characters are the text"
        assert not any("read as" in note for note in stated.notes)


def test_another_archive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (made.zipped({"a.txt": "text"}), b"PK\x03\x04\xff", made.zipped({"mimetype": "x"})):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        with pytest.raises(CorpusError, match="a zip archive"):
            look_at("-")


@pytest.mark.parametrize(
    ("text", "is_noted"),
    [
        ("n,said\n" + "1,x\n" * 9, True),
        ("n\tsaid, so\n" + "1\tx\n" * 9, True),
        ("n,said\n1,x\n", False),
        ("a\nb\n" * 9, False),
    ],
)
def test_a_table_is_read_as_text_with_a_note(text: str, is_noted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for settings in ({}, {"format": "text"}):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        seen = look_at("-", **settings)
        assert seen.characters == len(text)
        assert any("`data.format = csv`" in note for note in seen.notes) == (is_noted and not settings)
