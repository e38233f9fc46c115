"""The reader of mail (.eml, and .mbox for many): a message is a document, its subject the first line.

The plain text of a message is read, and its HTML only if there is no plain text. Attachments, addresses and other
headers are left out; quotations and signatures are text.
"""

from __future__ import annotations

import email
import re
from collections.abc import Iterator
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message

from gptcli.dataset.formats.charsets import codec_of
from gptcli.dataset.formats.html import html_text
from gptcli.dataset.formats.library_errors import refusing, require_package
from gptcli.dataset.formats.text_flow import whole_characters
from gptcli.dataset.sources import OnBytes, Source, as_file
from gptcli.errors import size

MAX_MESSAGE_BYTES = 256 << 20
"""Size of one message, which is in memory as a whole. Mail servers take at most 150 MB."""
MAX_DEPTH = 64
"""Nesting levels of the parts of a message."""
_BEGINS_MESSAGE = re.compile(rb"From .*\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b.*\d\d:\d\d.*\d{4}")
"""The line before each message of an mbox file (RFC 4155). Only the date tells it from a sentence in a message."""
_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)
_SPACE = re.compile(r"\s+")


def read_message(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The reader of a single message (see `readers`). Raises CorpusError."""
    with refusing(source, "mail", "Save the message again as .eml."), as_file(source, on_bytes) as file:
        content = file.read(MAX_MESSAGE_BYTES + 1)
        _refuse_too_long(content)
        yield filter(None, [_text_of(content, source)])


def read_mailbox(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The reader of mailboxes in mbox format (see `readers`): a message is a document. Raises CorpusError."""
    with refusing(source, "a mailbox", "Export it again in mbox format."), as_file(source, on_bytes) as file:
        for message in _messages(iter(lambda: file.readline(MAX_MESSAGE_BYTES + 1), b"")):
            yield filter(None, [_text_of(message, source)])


def _messages(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The messages of a mailbox, without the lines between them."""
    if not next(lines, b"").startswith(b"From "):
        raise ValueError("it does not begin with a line 'From …', as a mailbox does")
    message, after_blank = bytearray(), False
    for line in lines:
        if after_blank and _BEGINS_MESSAGE.match(line):
            yield _QUOTED_FROM.sub(rb"\1", message)
            message.clear()
        else:
            message += line
            _refuse_too_long(message)
        after_blank = not line.strip()
    yield _QUOTED_FROM.sub(rb"\1", message)


def _refuse_too_long(message: bytes | bytearray) -> None:
    if len(message) > MAX_MESSAGE_BYTES:
        raise ValueError(f"it has a message of more than {size(MAX_MESSAGE_BYTES)}")


def _text_of(content: bytes, source: Source) -> str:
    """Subject and text of a message; "" for one without text."""
    message = email.message_from_bytes(content)
    parts = (_subject(message), _text_of_part(message, source).strip("\r\n"))
    text = whole_characters("\n\n".join(filter(None, parts)))
    return text.replace("\r\n", "\n") + "\n" if text.strip() else ""


def _subject(message: Message) -> str:
    """The subject in one line, with its encoded words decoded (RFC 2047)."""
    raw = next((value for name, value in message.raw_items() if name.lower() == "subject"), "")
    try:
        words = [
            (part.encode("ascii", "surrogateescape") if isinstance(part, str) else part, label)
            for part, label in decode_header(str(raw))
        ]
    except (HeaderParseError, ValueError):
        return ""
    return _SPACE.sub(" ", "".join(_decoded(part, label) for part, label in words)).strip()


def _text_of_part(part: Message, source: Source, depth: int = 0) -> str:
    """The text of a part of a message: of all its own parts, or of the best of alternatives."""
    if depth > MAX_DEPTH:
        raise ValueError(f"it has a message nested more than {MAX_DEPTH} levels deep")
    kind = part.get_content_type()
    if part.get_content_disposition() == "attachment" or kind == "message/rfc822":
        return ""
    if part.is_multipart():
        inner = [inner for inner in part.get_payload() if isinstance(inner, Message)]
        if kind == "multipart/alternative":
            inner.sort(key=lambda part: part.get_content_type() != "text/plain")
        texts = (text for part in inner if (text := _text_of_part(part, source, depth + 1)).strip())
        return next(texts, "") if kind == "multipart/alternative" else "\n".join(texts)
    if kind not in ("text/plain", "text/html"):
        return ""
    content = part.get_payload(decode=True)
    text = _decoded(content if isinstance(content, bytes) else b"", part.get_content_charset())
    if kind == "text/html":
        require_package("lxml", source)
        return "".join(html_text([text]))
    return _unfolded(text) if part.get_param("format") == "flowed" else text


def _decoded(content: bytes, label: str | None) -> str:
    """The text in the encoding that the message names, or the likeliest, since names are often missing or wrong."""
    named = "utf-8" if label in (None, "us-ascii") else codec_of(label)
    for codec in filter(None, (named, "utf-8", "cp1252")):
        try:
            return content.decode(codec)
        except UnicodeDecodeError:
            continue
    return content.decode("latin-1")


def _unfolded(text: str) -> str:
    """Text with the lines of each paragraph joined, which format=flowed ends with a space (RFC 3676)."""
    lines: list[str] = []
    continues, last_depth = False, 0
    for line in text.splitlines():
        words = line.lstrip(">")
        depth = len(line) - len(words)
        words = words.removeprefix(" ")
        if continues and depth == last_depth:
            lines[-1] += words
        else:
            lines.append(">" * depth + " " * (depth > 0) + words)
        continues, last_depth = words.endswith(" ") and words != "-- ", depth
    return "\n".join(lines)
