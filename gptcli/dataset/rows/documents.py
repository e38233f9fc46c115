"""Rows as documents: finds the column of the text in the first rows, and yields the text of each row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice

from gptcli.dataset.rows.column import Column, NoTextError, choose_column
from gptcli.dataset.rows.header import is_known, require_header
from gptcli.dataset.rows.row import ReadRows, Row
from gptcli.dataset.sources import OnBytes, Source
from gptcli.errors import CorpusError

_FIRST_ROWS = 100
_MAX_FIRST_CHARACTERS = 1_000_000
"""Text of the first rows that is looked at, at most: a row may be as long as a book."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def row_reader(read_rows: ReadRows) -> Callable[[Source, OnBytes], Iterator[Iterator[str]]]:
    """A reader (see `readers`) of a format that has rows."""

    def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
        column = _column_of(source, read_rows)
        source.findings.column = column.in_words
        source.findings.bad_rows = source.findings.undecodable = source.findings.short_rows = 0
        for row in read_rows(source, on_bytes, column.top):
            text = _text_of(row, column, source)
            if text is not None:
                yield iter([text] if text else [])

    return read_documents


def _column_of(source: Source, read_rows: ReadRows) -> Column:
    first, size = [], 0
    for row in islice(read_rows(source, lambda _count: None, None), _FIRST_ROWS):
        if not row.problem:
            first.append(row.value)
            size += len(str(row.value))
        if size > _MAX_FIRST_CHARACTERS:
            break
    column = choose_column(first, source.settings.text_field, source.label)
    require_header(source, column, first)
    source.findings.is_known_column = is_known(column, source.settings.text_field)
    return column


def _text_of(row: Row, column: Column, source: Source) -> str | None:
    """The text of a row; None for one that cannot be read and is skipped. Raises CorpusError."""
    problem = row.problem
    if not problem:
        try:
            text = column.text_of(row.value)
            return text if text.isascii() else _whole_characters(text, source)
        except NoTextError as error:
            problem = str(error)
    if source.settings.errors == "skip":
        source.findings.problem = source.findings.problem or f"{row.place}: {problem}"
        source.findings.bad_rows += 1
        return None
    hint = "Mend the row, or skip such rows with `data.errors = skip`."
    raise CorpusError(f"{source.label}, {row.place}: {problem}.", hint)


def _whole_characters(text: str, source: Source) -> str:
    """The text without halves of characters, which JSON can have and UTF-8 cannot."""
    if not _SURROGATE.search(text):
        return text
    if source.settings.errors == "strict":
        raise NoTextError("it has half a character (a lone surrogate)")
    replaced, count = _SURROGATE.subn("\ufffd" if source.settings.errors == "replace" else "", text)
    source.findings.undecodable += count
    return replaced
