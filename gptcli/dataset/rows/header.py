"""The names that the first row of a table gives its columns, and doubt about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gptcli.config.values import is_number
from gptcli.dataset.rows.column import TEXT_NAMES, Column, listed
from gptcli.dataset.sources import Source
from gptcli.errors import CorpusError

_MAX_WORDS = 4
_MAX_CHARACTERS = 60
"""A longer name is rather a text."""


def require_header(source: Source, column: Column, rows: Sequence[Any]) -> None:
    """Raise CorpusError if the table has several columns with the name of its text, or seems to have no names at all.

    `rows` are the first rows. A column that the user states or that has a usual name is believed.
    """
    header = source.findings.header
    for name in (column.name, column.joins):
        if header.count(name) > 1:
            called = f"called '{name[:80]}'" if name else "without a name"
            message = f"{source.label} has {header.count(name):,} columns {called}."
            raise CorpusError(message, "Give them different names in its first row.")
    if header and not is_known(column, source.settings.text_field) and _looks_like_a_row(header, column, rows):
        message = f"{source.label} seems to begin without the names of its columns: its first row is {listed(header)}."
        hint = "Add a first row with names, such as id,text; if these are the names, choose one with `data.text_field`."
        raise CorpusError(message, hint)


def is_known(column: Column, stated: str | None) -> bool:
    """Whether the user or a usual name says that the column is the text, rather than its values."""
    return stated is not None or bool(column.joins) or column.name.lower().strip() in TEXT_NAMES


def _looks_like_a_row(header: Sequence[str], column: Column, rows: Sequence[Any]) -> bool:
    """Whether the text's column is named by a sentence, or a column of numbers by a number."""
    name = column.name.strip()
    if len(name.split()) > _MAX_WORDS or len(name) > _MAX_CHARACTERS or name.endswith((".", "!", "…")):
        return True
    return any(is_number(name) and all(is_number(row.get(name, "")) for row in rows) for name in header)
