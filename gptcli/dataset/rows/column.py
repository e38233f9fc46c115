"""The text of a row: one of its columns, found by its name, or a conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gptcli.errors import CorpusError

TEXT_NAMES = ("text", "content", "body", "document", "article", "story")
"""Names of columns that hold text. The first wins; of the others there must be only one."""
_CONVERSATIONS = ("messages", "conversations", "conversation")
_SPEAKERS = (("role", "content"), ("from", "value"))
_ANSWERS = ("completion", "response", "output")
_MAX_LISTED = 20
_MAX_DEPTH = 4
"""Levels of nested columns that a message names."""


class NoTextError(ValueError):
    """A value that is not text; the message completes "line 7: "."""


@dataclass(frozen=True)
class Column:
    """The place of the text in each row of a file."""

    name: str = ""
    """The column, or the columns joined by "+"; "": rows are texts themselves."""
    joins: str = ""
    """`messages`, or the second column after a prompt; "": the column is text."""
    top: str | None = None
    """The column of the file that is needed; None: all."""

    @property
    def in_words(self) -> str:
        if not self.name:
            return "each value"
        if self.joins == "messages":
            return f"the messages of '{self.name}', joined as text"
        return f"'{self.name}' and '{self.joins}', joined as text" if self.joins else f"column '{self.name}'"

    def text_of(self, value: Any) -> str:
        """The text of a row; "" where it has none. Raises NoTextError."""
        if not self.name:
            return _text(value, "it")
        if not isinstance(value, dict):
            raise NoTextError(f"it is {_kind(value)}, not an object with columns")
        found = _lookup(value, self.name)
        if self.joins == "messages":
            return _conversation(found, self.name)
        text = _text(found, f"'{self.name}'")
        if not self.joins:
            return text
        answer = _text(_lookup(value, self.joins), f"'{self.joins}'")
        touches = text[-1:].isspace() or answer[:1].isspace()
        return text + ("" if touches else "\n") + answer


def choose_column(rows: Sequence[Any], wanted: str | None, label: str) -> Column:
    """The column of the text, from the first rows of a file. Raises CorpusError, which lists the columns."""
    tables = [row for row in rows if isinstance(row, dict)]
    if not tables and (wanted is None or not rows):
        return Column()
    columns = list(dict.fromkeys(name for row in tables for name in row))
    if wanted is not None:
        values = [found for row in tables if (found := _lookup(row, wanted)) is not None]
        if inner := [f"{wanted}.{name}" for value in values if isinstance(value, dict) for name in value]:
            message = (
                f"The column '{wanted}' of {label} is an object: its columns are {listed([*dict.fromkeys(inner)])}."
            )
            raise CorpusError(message, f"Name one of them, such as `data.text_field = {inner[0]}`.")
        if values:
            return _stated(wanted, tables)
        message = f"{label} has no column '{wanted}': {_columns_of(tables)}."
        raise CorpusError(message, "Name another with `data.text_field`.")
    if column := _obvious(columns, tables):
        return column
    message = f"{label} has no column that is surely the text: {_columns_of(tables)}."
    raise CorpusError(message, "Name it with `data.text_field`.")


def _stated(name: str, rows: list[dict[str, Any]]) -> Column:
    values = [found for row in rows if (found := _lookup(row, name)) is not None]
    top = name if any(name in row for row in rows) else name.partition(".")[0]
    return Column(name, "messages" if all(isinstance(value, list) for value in values) else "", top)


def _obvious(columns: list[str], rows: list[dict[str, Any]]) -> Column | None:
    by_name = {name.lower().strip(): name for name in reversed(columns)}
    strings = {name for name in columns if any(isinstance(row.get(name), str) for row in rows)}
    if by_name.get("text") in strings:
        return Column(by_name["text"], top=by_name["text"])
    for name in _CONVERSATIONS:
        if name in columns and any(isinstance(row.get(name), list) for row in rows):
            return Column(name, "messages", name)
    if "prompt" in strings and (answers := [name for name in _ANSWERS if name in strings]):
        return Column("prompt", answers[0])
    named = [by_name[name] for name in TEXT_NAMES if by_name.get(name) in strings]
    likely = named or [name for name in columns if _holds_text(name, rows)]
    return Column(likely[0], top=likely[0]) if len(likely) == 1 else None


def _holds_text(name: str, rows: list[dict[str, Any]]) -> bool:
    """Whether a column has text, rather than numbers written as text, as in CSV, or nothing."""
    values = [value for row in rows if (value := row.get(name)) is not None]
    return all(isinstance(value, str) for value in values) and any(
        character.isalpha() for value in values for character in value[:1000]
    )


def _lookup(row: dict[str, Any], name: str) -> Any:
    """The value of a column, or of a nested one: `a.b`. None where it is missing."""
    if name in row:
        return row[name]
    first, _, rest = name.partition(".")
    inner = row.get(first)
    return _lookup(inner, rest) if rest and isinstance(inner, dict) else None


def _conversation(value: Any, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, list):
        raise NoTextError(f"'{name}' is {_kind(value)}, not a list of messages")
    return "\n".join(_message(message, name) for message in value)


def _message(message: Any, name: str) -> str:
    for role, content in _SPEAKERS:
        if isinstance(message, dict) and content in message:
            said = message[content]
            if isinstance(said, list):  # parts, of which some may be pictures
                said = "".join(_text(part.get("text"), "a part") for part in said if isinstance(part, dict))
            speaker = _text(message.get(role), f"the '{role}'") or "unknown"
            return f"{speaker}: {_text(said, 'the message')}"
    raise NoTextError(f"'{name}' has a message without role and content")


def _text(value: Any, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise NoTextError(f"{what} is {_kind(value)}, not text")
    return value


def _kind(value: Any) -> str:
    kinds = ((bool, "true or false"), (int | float, "a number"), (dict, "an object"), (list, "a list"))
    return next((words for kind, words in kinds if isinstance(value, kind)), "no text")


def _columns_of(rows: list[dict[str, Any]]) -> str:
    """The columns of rows, those inside of objects by their dotted names."""
    names = dict.fromkeys(path for row in rows for name, value in row.items() for path in _paths(name, value))
    return f"its columns are {listed([*names])}" if names else "its rows have no columns"


def _paths(name: str, value: Any, depth: int = 1) -> Iterator[str]:
    if isinstance(value, dict) and value and depth < _MAX_DEPTH:
        for inner, found in value.items():
            yield from _paths(f"{name}.{inner}", found, depth + 1)
    else:
        yield name


def listed(columns: Sequence[str]) -> str:
    """Names in quotes, at most twenty."""
    shown = ", ".join(f"'{name[:80]}'" for name in columns[:_MAX_LISTED])
    more = f" and {len(columns) - _MAX_LISTED:,} more" if len(columns) > _MAX_LISTED else ""
    return shown + more
