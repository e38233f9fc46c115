"""A row of a file, and the limit of its size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gptcli.dataset.sources import OnBytes, Source

MAX_ROW_CHARACTERS = 100_000_000
"""A row is held in memory whole. A longer one is likely a file in another format."""
TOO_LONG = f"it has more than {MAX_ROW_CHARACTERS / 1e6:.0f} million characters"


@dataclass(frozen=True, slots=True)
class Row:
    """A row: a dict of columns, or a text."""

    place: str
    """Where it is, for people: line 7."""
    value: Any = None
    problem: str = ""
    """Why the row cannot be read: "it has more fields than columns". The rows after it can."""


ReadRows = Callable[[Source, OnBytes, str | None], Iterator[Row]]
"""The rows of a source. Only the column that the last argument names is needed; None: all. Raises CorpusError."""


def lines(pieces: Iterator[str]) -> Iterator[str]:
    """The lines of a text that comes in pieces, with their ends. A line is cut where it has `MAX_ROW_CHARACTERS`."""
    held: list[str] = []
    size = 0
    for piece in pieces:
        found = piece.split("\n")
        for line in found[:-1]:
            yield "".join(held) + line + "\n" if held else line + "\n"
            held.clear()
            size = 0
        if found[-1]:
            held.append(found[-1])
            size += len(found[-1])
        if size > MAX_ROW_CHARACTERS:
            yield "".join(held)
            held.clear()
            size = 0
    if held:
        yield "".join(held)
