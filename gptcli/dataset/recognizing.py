"""The format of a source without a name that says it, by its content. What is not beyond doubt is plain text."""

from __future__ import annotations

import re

from gptcli.dataset.formats.archive import opened_archive
from gptcli.dataset.formats.library_errors import DAMAGE
from gptcli.dataset.rows.json_values import is_row
from gptcli.dataset.sources import Source, first_bytes

_BEFORE = rb"(?:\xef\xbb\xbf)?\s*"
_COMMENTS = rb"(?:<!--.*?-->\s*)*"
_STARTS: dict[str, re.Pattern[bytes]] = {
    "parquet": re.compile(rb"PAR1"),
    "pdf": re.compile(rb"%PDF-"),
    "xhtml": re.compile(
        _BEFORE + rb"<\?xml\b[^>]*>\s*" + _COMMENTS + rb"<(?:!doctype\s+html|html)\b", re.DOTALL | re.IGNORECASE
    ),
    "html": re.compile(_BEFORE + _COMMENTS + rb"<(?:!doctype\s+html|html)\b", re.DOTALL | re.IGNORECASE),
    "mbox": re.compile(rb"From [^\n]*\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b[^\n]*\d\d:\d\d[^\n]*\d{4}[^\n]*\n[!-9;-~]+:"),
}
"""How files of a format begin."""
_HEADERS = re.compile(rb"(?:([!-9;-~]+):[^\n]*+\n(?:[ \t][^\n]*+\n)*+)++\r?\n")
_HEADER_NAME = re.compile(rb"^([!-9;-~]+):", re.MULTILINE)
_OF_SERVERS = {b"message-id", b"mime-version", b"received", b"return-path", b"delivered-to"}
"""Headers of mail that a text which begins with "From: " and "Subject: " lacks."""
_TABLE_LINES = 5
_MIME_TYPES = {b"application/epub+zip": "epub", b"application/vnd.oasis.opendocument.text": "odt"}


def format_of_content(source: Source) -> str:
    """The format of a source by its content, a suffix of `READERS` without its dot; "" for plain text."""
    start = first_bytes(source)
    for name, pattern in _STARTS.items():
        if pattern.match(start):
            return name
    if start.startswith(b"PK\x03\x04"):
        return _format_of_archive(source)
    if headers := _HEADERS.match(start):
        names = {name.lower() for name in _HEADER_NAME.findall(headers[0])}
        if b"from" in names and names & _OF_SERVERS:
            return "eml"
    array = start.lstrip()
    if array.startswith(b"[") and array[1:].lstrip().startswith(b"{"):
        return "json"
    return "jsonl" if is_row(start) else ""


def may_be_table(source: Source) -> bool:
    """Whether the first lines have the same number of tabs, semicolons or commas each, as in a table without quotes."""
    lines = first_bytes(source).split(b"\n")[:-1][:_TABLE_LINES]
    counts = ({line.count(delimiter) for line in lines} for delimiter in (b"\t", b";", b","))
    return len(lines) == _TABLE_LINES and any(len(count) == 1 and min(count) > 0 for count in counts)


def _format_of_archive(source: Source) -> str:
    """The format of a document that is a zip file."""
    try:
        with opened_archive(source, lambda _count: None) as archive:
            if "word/document.xml" in archive:
                return "docx"
            kind = b"".join(archive.read("mimetype")) if "mimetype" in archive else b""
            return _MIME_TYPES.get(kind.strip(), "")
    except DAMAGE:
        return ""
