r"""The reader of WhatsApp's export (_chat.txt): the chat is a document, "Anna: hello" for each message.

The lines depend on the phone and its language:

    31.12.23, 21:15 - Anna: hello           Android: date, comma, time, dash
    12/31/23, 9:15 PM - Anna: hello
    31/12/2023 21:15 - Anna: hello
    [31.12.23, 21:15:05] Anna: hello        iPhone: the same in brackets, with seconds

Messages of the system, which have no speaker or begin with U+200E, and placeholders of pictures are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gptcli.dataset.formats.chat import chat_text
from gptcli.dataset.plain_text import read_text
from gptcli.dataset.sources import OnBytes, Source
from gptcli.errors import CorpusError

_DATE = (
    r"(?:\d{1,2}[./]\d{1,2}[./]\d{2,4}\.?(?:,| à| um| at| kl\.)?"
    r"|\d{1,2}-\d{1,2}-\d{2,4},|\d{4}([./-])\d{1,2}\1\d{1,2}\.?,)"
)
"""A date with dashes needs the comma: without one it begins the lines of log files."""
_TIME = r"\d{1,2}[:.]\d{2}(?:[:.]\d{2})?(?:[ \u00a0\u202f]?[AaPp]\.?[ \u00a0\u202f]?[Mm]\.?)?"
_MARKS = "[\u200e\u200f]*"
_ANDROID = re.compile(rf"{_MARKS}{_DATE} {_TIME} - (?P<message>.*)")
_IPHONE = re.compile(rf"{_MARKS}\[{_DATE} {_TIME}\] (?P<message>.*)")
_SPOKEN = re.compile(r"(?P<speaker>[^:]{1,60}): (?P<text>.*)")
_PLACEHOLDER = re.compile(r"\u200e.*|<[^<>]*>|null|This message was deleted\.?|You deleted this message\.?", re.DOTALL)
_EDITED = re.compile("\u200e<[^<>]*>$")
_MIN_MESSAGES = 4


def recognizes(source: Source) -> bool:
    """Whether the file is an export with certainty.

    The first line must begin a message, there must be at least four, and speakers must come back.
    """
    try:
        start = next(read_text(source, lambda _: None), "")
    except CorpusError:
        return False
    lines = start.splitlines()
    if not _style_of(lines[0] if lines else ""):
        return False
    speakers = [speaker for speaker, _ in _messages(lines)]
    return len(speakers) >= max(_MIN_MESSAGES, 2 * len(set(speakers)))


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The reader of WhatsApp's export (see `readers`): the file is one document. Raises CorpusError."""
    yield chat_text(_messages(_lines(read_text(source, on_bytes))))


def _style_of(line: str) -> re.Pattern[str] | None:
    return next((style for style in (_ANDROID, _IPHONE) if style.match(line)), None)


def _messages(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Speaker and text of each message of a person."""
    style: re.Pattern[str] | None = None
    speaker, text = "", []
    for line in lines:
        style = style or _style_of(line)
        begun = style.match(line) if style else None
        if not begun:
            text.append(line)
            continue
        yield from _spoken(speaker, text)
        spoken = _SPOKEN.fullmatch(begun["message"])
        speaker, text = (spoken["speaker"], [spoken["text"]]) if spoken else ("", [])
    yield from _spoken(speaker, text)


def _spoken(speaker: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    text = "\n".join(lines)
    if speaker and not _PLACEHOLDER.fullmatch(text):
        yield speaker, _EDITED.sub("", text)


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """The lines of a text in pieces, without their ends."""
    begun: list[str] = []
    for piece in pieces:
        first, *others = piece.split("\n")
        begun.append(first)
        for other in others:
            yield "".join(begun).removesuffix("\r")
            begun = [other]
    yield "".join(begun).removesuffix("\r")
