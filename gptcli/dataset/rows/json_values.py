"""Rows of JSON: one value per line (`.jsonl`), or the elements of an array (`.json`), parsed one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from gptcli.dataset.plain_text import read_text
from gptcli.dataset.refusals import NotRowsError
from gptcli.dataset.rows.row import MAX_ROW_CHARACTERS, TOO_LONG, Row, lines
from gptcli.dataset.sources import OnBytes, Source
from gptcli.errors import CorpusError

_SPACE = re.compile(r"[ \t\n\r]*")
_MIN_READ = 1 << 17
_decoder = json.JSONDecoder(parse_int=float)
"""A number is never text, and Python refuses to parse integers of more than 4,300 digits."""


def read_lines(source: Source, on_bytes: OnBytes, column: str | None = None) -> Iterator[Row]:
    """The rows of JSON Lines. A blank line is no row."""
    for number, line in enumerate(lines(read_text(source, on_bytes)), start=1):
        if len(line) > MAX_ROW_CHARACTERS:
            raise _bad(source, f"line {number:,}", TOO_LONG)
        if not line.isspace():
            yield _row_of_line(line, f"line {number:,}")


def read_array(source: Source, on_bytes: OnBytes, column: str | None = None) -> Iterator[Row]:
    """The rows of a JSON array, or of one object after another, as in JSON Lines.

    Raises NotRowsError for a single object, which is rather the settings of a program than text.
    """
    text = _Text(source, on_bytes)
    if text.peek() == "{":
        first = text.row()
        if not text.peek():
            message = f"{source.label} holds a single JSON object, not an array of rows."
            raise NotRowsError(message, "To train on its characters, add `data.format = text`.")
        yield first
        while text.peek():
            yield text.row()
        return
    if not text.peek():
        return
    text.expect("[", "it is no array of rows")
    if text.peek() == "]":
        text.expect("]", "")
    else:
        yield text.row()
        while text.peek() == ",":
            text.expect(",", "")
            yield text.row()
        text.expect("]", "it has neither a comma nor the end of the array")
    if text.peek():
        raise _bad(source, text.place(), "there is more after the end of the array")


def _row_of_line(line: str, place: str) -> Row:
    try:
        return Row(place, _decoder.decode(line))
    except RecursionError:
        return Row(place, problem="it is nested too deeply")
    except ValueError as error:
        return Row(place, problem=f"it is not JSON ({_reason(error)})")


class _Text:
    """JSON text that is read as far as the next value needs."""

    def __init__(self, source: Source, on_bytes: OnBytes) -> None:
        self._source, self._pieces = source, read_text(source, on_bytes)
        self._text, self._at, self._line = "", 0, 1

    def place(self) -> str:
        return f"line {self._line:,}"

    def peek(self) -> str:
        """The next character that is not white space; "" at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None, "it matches nothing too"
            self._skip_to(match.end())
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_more():
                return ""

    def expect(self, character: str, otherwise: str) -> None:
        if self.peek() != character:
            raise _bad(self._source, self.place(), otherwise)
        self._skip_to(self._at + 1)

    def row(self) -> Row:
        """The next value. It is parsed again with twice as much text as long as it seems to be cut off."""
        self.peek()
        while True:
            try:
                value, end = _decoder.raw_decode(self._text, self._at)
                if end < len(self._text) or not self._read_more():  # a number may go on in the next piece
                    break
            except RecursionError:
                raise _bad(self._source, self.place(), "it is nested too deeply") from None
            except ValueError as error:
                if not self._may_be_cut_off(error) or not self._read_more():
                    raise _bad(self._source, self.place(), f"it is not JSON ({_reason(error)})") from None
            if len(self._text) - self._at > MAX_ROW_CHARACTERS:
                raise _bad(self._source, self.place(), TOO_LONG)
        row = Row(self.place(), value)
        self._skip_to(end)
        return row

    def _may_be_cut_off(self, error: ValueError) -> bool:
        """Whether the parser failed at the end of what was read so far, or in a string that has not ended."""
        place = getattr(error, "pos", None)
        is_string = getattr(error, "msg", "").startswith("Unterminated string")
        return is_string or (place is not None and place >= len(self._text) - len(r"\u0000\u0000"))

    def _skip_to(self, end: int) -> None:
        self._line += self._text.count("\n", self._at, end)
        self._at = end

    def _read_more(self) -> bool:
        """Double the unread text, at least; False at the end of the source."""
        unread = self._text[self._at :]
        more: list[str] = []
        size, wanted = 0, max(_MIN_READ, len(unread))
        while size < wanted and (piece := next(self._pieces, "")):
            more.append(piece)
            size += len(piece)
        self._text, self._at = unread + "".join(more), 0
        return bool(more)


def _reason(error: ValueError) -> str:
    """The parser's reason without its place, which is counted from the row's start."""
    return str(getattr(error, "msg", error)).lower().removesuffix(" at").removesuffix(" starting at")


def _bad(source: Source, place: str, problem: str) -> CorpusError:
    hint = "Mend it, or train on the characters of the file with `data.format = text`."
    return CorpusError(f"{source.label}, {place}: {problem}.", hint)


def is_row(start: bytes) -> bool:
    """Whether a text that begins with `start` is likely JSON Lines: its first line is a whole object."""
    first: Any = None
    try:
        first = json.loads(start.lstrip().partition(b"\n")[0], parse_int=float)
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict)
