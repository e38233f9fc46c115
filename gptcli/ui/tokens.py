"""Tokens as people can read them: on one line, with visible spaces, and bytes where a character is cut."""

from __future__ import annotations

from typing import Any

from gptcli.generation.logprobs import Candidate, TokenLogprob
from gptcli.ui.console import one_line

SPACE = "␣"
_SURROGATES = 0xDC00
"""Python decodes a byte that is not UTF-8 to this code point plus the byte ("surrogateescape")."""


def shown(token: Candidate) -> str:
    """A token on one line: `␣the`, `\\n`, `\\xc3` for a part of a character.

    >>> shown(Candidate(5, " the", b" the", 0.0))
    '␣the'
    """
    if not token.bytes:  # a special token has a name, or else only its id
        return token.text or f"<id {token.id}>"
    return "".join(_shown(char) for char in token.bytes.decode(errors="surrogateescape"))


def token_as_json(token: Candidate) -> dict[str, Any]:
    """A token for programs, a `TokenLogprob` with its alternatives; the names are a promise."""
    values: dict[str, Any] = {
        "id": token.id,
        "text": token.text,
        "bytes": list(token.bytes),
        "logprob": token.logprob,
    }
    if isinstance(token, TokenLogprob):
        values["alternatives"] = [token_as_json(other) for other in token.alternatives]
    return values


def id_as_json(token: Candidate) -> dict[str, Any]:
    """A token for programs, without a log-probability."""
    return {key: value for key, value in token_as_json(token).items() if key != "logprob"}


def in_text(token: Candidate) -> str:
    """A token as a part of running text: as it is, but a part of a character in hexadecimal."""
    return "".join(_byte(char) if _is_byte(char) else char for char in token.bytes.decode(errors="surrogateescape"))


def _shown(char: str) -> str:
    if _is_byte(char):
        return _byte(char)
    if char == " ":
        return SPACE
    if char == "\\" or not (char.isprintable() or char in "\n\t"):
        return char.encode("unicode_escape").decode()
    return one_line(char)


def _is_byte(char: str) -> bool:
    return _SURROGATES <= ord(char) < _SURROGATES + 256


def _byte(char: str) -> str:
    return f"\\x{ord(char) - _SURROGATES:02x}"
