"""The text of a chat: a line "Anna: hello" for each message. Used by the readers of chat exports.

A chat is one document, as it is one text: days are no borders, since conversations continue past midnight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gptcli.dataset.formats.text_flow import whole_characters

_PIECE_CHARACTERS = 1 << 16


def chat_text(messages: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The text of messages, pairs of speaker and text, in pieces of about 64 kB. Empty messages are left out."""
    lines: list[str] = []
    length = 0
    for speaker, text in messages:
        if text := text.strip():
            lines.append(f"{speaker.strip()}: {text}\n")
            length += len(lines[-1])
        if length >= _PIECE_CHARACTERS:
            yield whole_characters("".join(lines))
            lines, length = [], 0
    if lines:
        yield whole_characters("".join(lines))
