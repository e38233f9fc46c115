"""The reader of Telegram's export (result.json), of one chat or of all: a chat is a document.

Messages of the service, pictures and stickers are left out; captions are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from gptcli.dataset.formats.chat import chat_text
from gptcli.dataset.formats.json_events import Place, json_objects
from gptcli.dataset.formats.library_errors import refusing, require_package
from gptcli.dataset.sources import OnBytes, Source, as_file, chunks

_TEXT = rb'"(?:[^"\\]|\\.)*"'
_ONE_CHAT = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*(?:"name"\s*:\s*(?:' + _TEXT + rb'|null)\s*,\s*)?"type"\s*:\s*'
    rb'"(?:personal_chat|bot_chat|saved_messages|replies|(?:private|public)_(?:group|supergroup|channel))"\s*,\s*'
    rb'"id"\s*:\s*-?\d+\s*,\s*"messages"\s*:\s*\['
)
_ALL_CHATS = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"about"\s*:\s*' + _TEXT + rb'\s*,\s*"(?:personal_information|profile_pictures|stories|'
    rb'contacts|frequent_contacts|sessions|web_sessions|other_data|chats|left_chats)"\s*:\s*[\[{]'
)
_LISTS = (["chats", "list"], ["left_chats", "list"])


def recognizes(source: Source) -> bool:
    """Whether the file begins as an export of Telegram does."""
    start = next(chunks(source), b"")
    return bool(_ONE_CHAT.match(start) or _ALL_CHATS.match(start))


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The reader of Telegram's export (see `readers`): a chat is a document. Raises CorpusError."""
    for _, messages in groupby(_messages(source, on_bytes), key=lambda found: found[0][:-1]):
        yield chat_text(_speaker_and_text(message) for _, message in messages)


def _messages(source: Source, on_bytes: OnBytes) -> Iterator[tuple[Place, dict[str, Any]]]:
    require_package("ijson", source)
    hint = "Export the chat again in Telegram Desktop, in JSON format."
    with refusing(source, "an export of Telegram", hint), as_file(source, on_bytes) as file:
        yield from json_objects(file, _is_message)


def _is_message(place: list[str | int]) -> bool:
    in_list = len(place) == 5 and place[:2] in _LISTS
    return (len(place) == 2 or in_list) and place[-2] == "messages"


def _speaker_and_text(message: dict[str, Any]) -> tuple[str, str]:
    """Speaker and text of a message; no text if it is not one of a person."""
    content = message.get("text", "")
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text", "") if isinstance(part, dict) else part for part in parts]
    text = "".join(text for text in texts if isinstance(text, str))
    return str(message.get("from") or "Deleted Account"), text if message.get("type") == "message" else ""
