"""The reader of Discord channels, exported to JSON by DiscordChatExporter: a channel is a document.

Messages of the system, attachments and embeds are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gptcli.dataset.formats.chat import chat_text
from gptcli.dataset.formats.json_events import json_objects
from gptcli.dataset.formats.library_errors import refusing, require_package
from gptcli.dataset.sources import OnBytes, Source, as_file, chunks

_START = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"guild"\s*:\s*\{')
_REST = (re.compile(rb'"channel"\s*:\s*\{'), re.compile(rb'"messages"\s*:\s*\['))


def recognizes(source: Source) -> bool:
    """Whether the file begins as an export of DiscordChatExporter does."""
    start = next(chunks(source), b"")
    return bool(_START.match(start)) and all(pattern.search(start) for pattern in _REST)


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The reader of Discord channels (see `readers`): the file is one document. Raises CorpusError."""
    yield chat_text(map(_speaker_and_text, _messages(source, on_bytes)))


def _messages(source: Source, on_bytes: OnBytes) -> Iterator[dict[str, Any]]:
    require_package("ijson", source)
    hint = "Export the channel again in JSON format."
    with refusing(source, "an export of Discord", hint), as_file(source, on_bytes) as file:
        yield from (message for _, message in json_objects(file, _is_message))


def _is_message(place: list[str | int]) -> bool:
    return len(place) == 2 and place[0] == "messages"


def _speaker_and_text(message: dict[str, Any]) -> tuple[str, str]:
    """Speaker and text of a message; no text if it is not one of a person."""
    author, text = message.get("author"), message.get("content")
    is_of_person = message.get("type") in ("Default", "Reply")
    if not isinstance(author, dict) or not isinstance(text, str) or not is_of_person:
        return "", ""
    return str(author.get("nickname") or author.get("name") or "Unknown"), text
