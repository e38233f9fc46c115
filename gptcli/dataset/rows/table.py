"""Rows of CSV, as in RFC 4180, and of TSV: the first row names the columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import chain

from gptcli.dataset.plain_text import read_text
from gptcli.dataset.rows.row import MAX_ROW_CHARACTERS, TOO_LONG, Row, lines
from gptcli.dataset.rows.tsv import OpenQuoteError, TsvRecords
from gptcli.dataset.sources import OnBytes, Source
from gptcli.errors import CorpusError, counted

_DELIMITERS = ",;\t|"
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
"""The first line of some files for Excel, which names the separator of the columns."""
_RETURN = "it has a carriage return inside a row: old Macs ended lines so"

Record = tuple[int, list[str] | str]
"""The number of a record's first line, and its fields, or why it cannot be read."""


def read_csv(source: Source, on_bytes: OnBytes, column: str | None = None) -> Iterator[Row]:
    """The rows of a table whose columns are separated by commas, semicolons, tabs or bars, as in its first line."""
    return _rows(source, lines(read_text(source, on_bytes)), None)


def read_tsv(source: Source, on_bytes: OnBytes, column: str | None = None) -> Iterator[Row]:
    """The rows of a table whose columns are separated by tabs."""
    return _rows(source, lines(read_text(source, on_bytes)), "\t")


def _rows(source: Source, text: Iterator[str], delimiter: str | None) -> Iterator[Row]:
    first, begins_at = next(text, ""), 1
    if stated := _SEPARATOR_LINE.fullmatch(first):
        delimiter, first, begins_at = stated[1], next(text, ""), 2
    delimiter = delimiter or max(_DELIMITERS, key=first.count)
    text = chain([first], text)
    records = _tsv(source, text, begins_at) if delimiter == "\t" else _csv(source, text, delimiter, begins_at)
    columns = 0
    for line, fields in records:
        place = f"line {line:,}"
        if isinstance(fields, str):
            yield Row(place, problem=fields)
        elif not columns:
            source.findings.header, columns = tuple(fields), len(fields)
        elif len(fields) > columns:
            yield Row(place, problem=f"it has {len(fields):,} fields, and the table has {columns:,} columns")
        else:
            source.findings.short_rows += 0 < len(fields) < columns
            yield Row(place, dict(zip(source.findings.header, fields, strict=False)))


def _csv(source: Source, text: Iterator[str], delimiter: str, begins_at: int) -> Iterator[Record]:
    csv.field_size_limit(MAX_ROW_CHARACTERS)  # of the process; the default of 128 kB is less than a book
    parsed = csv.reader(text, delimiter=delimiter, strict=True)
    while True:
        before = parsed.line_num
        try:
            fields = next(parsed, None)
        except csv.Error as error:
            over = parsed.line_num - before
            raise _bad(source, before + begins_at, _problem(str(error), over, delimiter)) from None
        if fields is None:
            return
        yield before + begins_at, fields


def _tsv(source: Source, text: Iterator[str], begins_at: int) -> Iterator[Record]:
    records, columns = TsvRecords(text, begins_at), 0
    while True:
        line = records.line
        try:
            fields = records.take(columns)
        except OpenQuoteError as error:
            yield line, str(error)
            continue
        except ValueError as error:
            raise _bad(source, line, str(error)) from None
        if fields is None:
            return
        if not columns and any("\r" in name for name in fields):
            raise _bad(source, line, _RETURN)
        columns = columns or len(fields)
        yield line, fields


def _problem(reason: str, over: int, delimiter: str) -> str:
    """The reason why a row is not CSV, in our words instead of Python's; the row spans `over` lines."""
    goes_over = f", after {over:,} lines" if over > 1 else ""
    if "limit" in reason:
        return f"a quoted field begins here, and {TOO_LONG}{goes_over}" if over > 1 else TOO_LONG
    if "unexpected end" in reason:
        return f"a quoted field begins here and never ends: {counted(over, 'line')} would be one row"
    if "expected after" in reason:
        return f"a quoted field has text between its closing quotation mark and the next '{delimiter}'{goes_over}"
    return _RETURN if "new-line character" in reason else f"it is not CSV ({reason})"


def _bad(source: Source, line: int, problem: str) -> CorpusError:
    hint = "Mend it, or train on the characters of the file with `data.format = text`."
    if problem == _RETURN:
        hint = "Convert its line ends: tr '\\r' '\\n' < OLD.csv > NEW.csv."
    return CorpusError(f"{source.label}, line {line:,}: {problem}.", hint)
