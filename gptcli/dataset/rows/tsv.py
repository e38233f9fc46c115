"""Records of tab-separated text, in which most programs quote nothing and spreadsheets quote some fields.

A field that begins with a quotation mark is quoted, as Excel writes it, if another mark ends it before a tab or the end
of a line. Otherwise the mark is text: `"Yes," he said`. A quoted field may go over several lines, but not where its
first line has as many fields as the table has columns and the next line too: these are two rows, and the mark is text.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from gptcli.dataset.rows.row import MAX_ROW_CHARACTERS, TOO_LONG

_QUOTED = re.compile(r'"([^"]*+(?:""[^"]*+)*+)"(?=\t|\Z)')
_UNCLOSED = re.compile(r'"[^"]*+(?:""[^"]*+)*+\Z')


class OpenQuoteError(ValueError):
    """A row that is too short, with a quoted field that never ends. The next row begins on the next line."""


class TsvRecords:
    """The records of a table, one after another, from its lines."""

    def __init__(self, lines: Iterator[str], line: int) -> None:
        self._lines, self._ahead = lines, deque[str]()
        self.line = line
        """Number of the line on which the next record begins."""

    def take(self, columns: int) -> list[str] | None:
        """The fields of the next record: [] for a blank line, None at the end of the text.

        `columns` is the number of columns of the table; 0 for its header. Raises OpenQuoteError, and ValueError for a
        record that is too long.
        """
        if not self._has(1):
            return None
        text = self._pop(1)
        if len(text) > MAX_ROW_CHARACTERS:
            raise ValueError(TOO_LONG)
        stop = _end_of(text)
        if not text.startswith('"') and '\t"' not in text:
            return text[:stop].split("\t") if stop else []
        fields: list[str] = []
        at = 0
        while at <= stop:
            if _UNCLOSED.match(text, at, stop):
                text += self._continuation(text, at, len(fields), columns)
                stop = _end_of(text)
            quoted = _QUOTED.match(text, at, stop)
            end = quoted.end() if quoted else text.find("\t", at, stop)
            end = stop if end < 0 else end
            fields.append(quoted[1].replace('""', '"') if quoted else text[at:end])
            at = end + 1
        return fields

    def _continuation(self, text: str, at: int, before: int, columns: int) -> str:
        """The lines that the field which opens at `at` of `text`, after `before` fields, goes over; "" if none."""
        is_whole = before + _fields_in(text[at:]) == columns
        if is_whole and columns > 1 and (not self._has(1) or _fields_in(self._ahead[0]) == columns):
            return ""
        count, size, is_odd = 0, len(text), False
        while not is_odd and self._has(count + 1):  # a line with an odd number of marks ends the field, if any does
            line = self._ahead[count]
            count, size, is_odd = count + 1, size + len(line), line.count('"') % 2 == 1
            if size > MAX_ROW_CHARACTERS:
                raise ValueError(f"a quoted field begins here, and {TOO_LONG}")
        more = "".join(self._ahead[number] for number in range(count))
        if is_odd and _QUOTED.match(text + more, at, _end_of(text + more)):
            return self._pop(count)
        if is_whole or not columns:
            return ""
        raise OpenQuoteError("a quoted field begins here and never ends")

    def _has(self, count: int) -> bool:
        """Whether there are that many more lines."""
        while len(self._ahead) < count and (line := next(self._lines, None)) is not None:
            self._ahead.append(line)
        return len(self._ahead) >= count

    def _pop(self, count: int) -> str:
        self.line += count
        return "".join(self._ahead.popleft() for _ in range(count))


def _end_of(text: str) -> int:
    return len(text.rstrip("\r\n"))


def _fields_in(text: str) -> int:
    return text.count("\t") + 1
