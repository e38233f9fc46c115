"""Mail: which part of a message is its text, encodings, and where the messages of a mailbox begin."""

from __future__ import annotations

import pytest

from gptcli.dataset.formats.mail import MAX_DEPTH
from gptcli.errors import CorpusError
from tests.dataset.formats import made
from tests.dataset.formats.conftest import Read


def test_plain_text_is_preferred(read: Read) -> None:
    assert read(made.message("Hällo", "plain é\nline", "<p>html</p>"), "a.eml") == ["Hällo\n\nplain é\nline\n"]
    assert read(made.message("S", "", "<p>only</p><p>html é</p>"), "a.eml") == ["S\n\nonly\n\nhtml é\n"]
    swapped = made.message("S", "plain", "<p>html</p>").replace(b"multipart/alternative", b"multipart/mixed")
    assert read(swapped, "a.eml") == ["S\n\nplain\n\nhtml\n"], "several parts that are no alternatives"


def test_transfer_encodings_and_charsets(read: Read) -> None:
    text = "é € and a line that is far longer than mail allows, " * 5
    for options in ({"cte": "quoted-printable"}, {"cte": "base64"}, {"cte": "8bit"}, {"charset": "cp1252"}):
        assert read(made.message("S", text, **options), "a.eml") == [f"S\n\n{text}\n"]
    raw = b"Subject: =?utf-8?q?=C3=A9?= =?iso-8859-1?q?=E9?= x\r\nContent-Type: text/plain; charset=%b\r\n\r\n%b\r\n"
    assert read(raw % (b"no-such", "“é”".encode("cp1252")), "a.eml") == ["éé x\n\n“é”\n"]
    assert read(raw % (b"us-ascii", "“é”".encode()), "a.eml") == ["éé x\n\n“é”\n"]
    assert read(raw % (b"rot13", b"abc"), "a.eml") == ["éé x\n\nabc\n"]
    assert read("Subject: raw é\n\nx".encode(), "a.eml") == ["raw é\n\nx\n"]
    assert read(b"Subject: =?utf-8?b?a?=\n\nx", "a.eml") == ["x\n"], "a subject that cannot be decoded"


def test_attachments_are_left_out(read: Read) -> None:
    parts = [
        b"Content-Type: text/plain\n\nbody",
        b"Content-Type: text/plain\nContent-Disposition: attachment; filename=a.txt\n\nattached",
        b"Content-Type: message/rfc822\n\nSubject: inner\n\nforwarded",
        b"Content-Type: image/png\n\n\x89PNG",
    ]
    message = (
        b"Content-Type: multipart/mixed; boundary=b\n\n" + b"".join(b"--b\n%b\n" % part for part in parts) + b"--b--\n"
    )
    assert read(message, "a.eml") == ["body\n"]
    assert read(made.message("", " \n"), "a.eml") == [""]


def test_flowed_lines_are_joined(read: Read) -> None:
    flowed = b"Content-Type: text/plain; format=flowed\n\n> quoted \n> text\nA long \nparagraph.\n From x\n-- \nAnna\n"
    assert read(flowed, "a.eml") == ["> quoted text\nA long paragraph.\nFrom x\n-- \nAnna\n"]


def test_a_mailbox(read: Read) -> None:
    body = "text\n\nFrom here on it is 12:30 and 2023.\n\nFrom me\n"
    box = made.mbox(made.message("1", body), made.message("", "second\n"), made.message("3", "third"))
    assert read(box, "a.mbox") == [f"1\n\n{body}", "second\n", "3\n\nthird\n"]
    not_quoted = box.replace(b"\n>From ", b"\nFrom ")
    assert read(not_quoted, "a.mbox") == read(box, "a.mbox")
    assert read(box.replace(b"\n", b"\r\n"), "a.mbox") == read(box, "a.mbox")


def test_what_is_no_mailbox(read: Read) -> None:
    for content in (b"", b"Subject: a\n\nx", b"\n\nFrom a"):
        with pytest.raises(CorpusError, match="From"):
            read(content, "a.mbox")


def test_deeply_nested_messages_are_refused(read: Read) -> None:
    for depth in (MAX_DEPTH + 1, 5000):
        part = b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n"
        nested = b"".join(part % (number, number) for number in range(depth)) + b"\ntext"
        with pytest.raises(CorpusError, match="nested"):
            read(nested, "a.eml")
