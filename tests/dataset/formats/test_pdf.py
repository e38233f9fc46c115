"""PDF: pages, and files that pypdf cannot read."""

from __future__ import annotations

import logging

import pytest

from gptcli.dataset.formats import pdf
from gptcli.dataset.refusals import NotTextError
from gptcli.errors import CorpusError
from tests.dataset.formats import made
from tests.dataset.formats.conftest import Read


def test_the_text_of_the_pages(read: Read) -> None:
    assert read(made.pdf(["First line\nsecond, \xe9.", "", "Next page"]), "a.pdf") == [
        "First line\nsecond, \xe9.\nNext page\n"
    ]


def test_a_pdf_without_text_is_no_text(read: Read) -> None:
    with pytest.raises(NotTextError) as refusal:
        read(made.pdf(["", ""]), "a.pdf")
    assert "ocrmypdf" in refusal.value.hint


def test_pages_that_unpack_to_too_much(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    content = made.pdf(["x" * 100_000])
    assert len(content) < 2_000
    assert len(read(content, "a.pdf")[0]) == 100_001
    monkeypatch.setattr(pdf, "RATIO_COUNTS_FROM", 50_000)
    monkeypatch.setattr(pdf, "MAX_RATIO", 20)
    with pytest.raises(CorpusError, match="20 times"):
        read(content, "a.pdf")


@pytest.mark.parametrize("content", [b"", b"%PDF-1.4", b"no PDF at all", made.pdf(["x"])[:300]])
def test_a_damaged_pdf_is_refused_in_one_sentence(
    read: Read, content: bytes, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(CorpusError, match=r"^'a\.pdf' .*\.$") as refusal:
        read(content, "a.pdf")
    assert refusal.value.hint
    assert not caplog.records
    assert capsys.readouterr().err == ""


def test_a_pdf_with_a_password_is_refused(read: Read) -> None:
    """RC4 with a user password: /O and /U fit no password, so that the empty one is wrong too."""
    key = "A" * 32
    lock = f"/Encrypt<</Filter/Standard/V 1/R 2/O({key})/U({key})/P -4>>/ID[(1234567890123456)(1234567890123456)]"
    with pytest.raises(CorpusError, match="password"):
        read(made.pdf(["secret"], trailer=lock), "a.pdf")
