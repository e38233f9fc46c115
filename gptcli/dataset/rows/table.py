"""Rows of CSV and TSV, as in RFC 4180: the first row names the columns."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from gptcli.dataset.plain_text import read_text
from gptcli.dataset.rows.row import MAX_ROW_CHARACTERS, TOO_LONG, Row, lines
from gptcli.dataset.sources import OnBytes, Source
from gptcli.errors import CorpusError

_DELIMITERS = ",;\t|"


def read_csv(source: Source, on_bytes: OnBytes, column: str | None = None) -> Iterator[Row]:
    """The rows of a table whose columns are separated by commas, semicolons, tabs or bars, as in its first line."""
    return _rows(source, lines(read_text(source, on_bytes)), None)


def read_tsv(source: Source, on_bytes: OnBytes, column: str | None = None) -> Iterator[Row]:
    """The rows of a table whose columns are separated by tabs."""
    return _rows(source, lines(read_text(source, on_bytes)), "\t")


def _rows(source: Source, text: Iterator[str], delimiter: str | None) -> Iterator[Row]:
    first = next(text, "")
    delimiter = delimiter or max(_DELIMITERS, key=first.count)
    csv.field_size_limit(MAX_ROW_CHARACTERS)  # of the process; the default of 128 kB is less than a book
    parsed = csv.reader(_with_first(first, text), delimiter=delimiter, strict=True)
    columns: list[str] = []
    while True:
        before = parsed.line_num
        place = f"line {before + 1:,}"
        try:
            fields = next(parsed, None)
        except csv.Error as error:
            raise _bad(source, place, str(error)) from None
        if fields is None:
            return
        if not columns:
            columns = fields
        elif len(fields) > len(columns):
            yield Row(place, problem=f"it has {len(fields):,} fields, and the table has {len(columns):,} columns")
        else:
            yield Row(place, dict(zip(columns, fields, strict=False)))


def _with_first(first: str, text: Iterator[str]) -> Iterator[str]:
    yield first
    yield from text


def _bad(source: Source, place: str, problem: str) -> CorpusError:
    problem = TOO_LONG if "limit" in problem else f"it is not CSV ({problem})"
    hint = "Mend it, or train on the characters of the file with `data.format = text`."
    return CorpusError(f"{source.label}, {place}: {problem}.", hint)
