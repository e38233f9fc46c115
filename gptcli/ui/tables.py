"""Tables for terminals of any width and for pipes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from gptcli.errors import with_prefix
from gptcli.ui.console import one_line

Align = Literal["left", "right"]
Column = tuple[str, Align]


def left(*names: str) -> list[Column]:
    """Columns of text."""
    return [(name, "left") for name in names]


def right(*names: str) -> list[Column]:
    """Columns of numbers."""
    return [(name, "right") for name in names]


def table(
    title: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[object]],
    *,
    total: Sequence[object] | None = None,
) -> Group:
    """A title and a table with a head; numbers get thousands separators, and None is a dash.

    `total` is a separate last row. On a narrow terminal the last left-aligned column is folded, but not the first one;
    if the table is still too wide, all columns are. Cells are never cut.
    """
    names = [Text(one_line(name)) for name, _ in columns]
    lines = [[cell(value) for value in row] for row in rows]
    last = None if total is None else [cell(value) for value in total]
    flexible = max((place for place, (_, align) in enumerate(columns) if align == "left"), default=0)
    stiff = [place != flexible or place == 0 for place in range(len(columns))]
    texts = zip(*[names, *lines, *([last] if last else [])], strict=True)
    least = [max(_width(text, whole=whole) for text in column) for column, whole in zip(texts, stiff, strict=True)]

    def made(no_wraps: Sequence[bool]) -> Table:
        form = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        for name, (_, align), no_wrap in zip(names, columns, no_wraps, strict=True):
            form.add_column(name, justify=align, no_wrap=no_wrap, overflow="fold")
        for line in lines:
            form.add_row(*line)
        if last:
            form.add_section()
            form.add_row(*last, style="bold")
        return form

    return Group(_heading(title), _Fitting(sum(least) + len(least) - 1, made(stiff), made([False] * len(columns))))


def _width(text: Text, *, whole: bool) -> int:
    """Smallest width of a cell in terminal columns: of its longest word, or of the `whole` text."""
    return max(map(cell_len, [text.plain] if whole else text.plain.split()), default=0)


class _Fitting:
    """A table that is `width` terminal columns wide, and its narrow form for smaller terminals."""

    def __init__(self, width: int, table: Table, narrow: Table) -> None:
        self._width, self._table, self._narrow = width, table, narrow

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._table if self._width <= options.max_width else self._narrow


def facts(title: str, rows: Iterable[tuple[str, object]]) -> Group:
    """A titled list of names and values."""
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(Text(one_line(name)), cell(value))
    return Group(_heading(title), made)


def _heading(title: str) -> Text:
    return Text(one_line(title), "bold")


def cell(value: object) -> Text:
    """A value as one line of a table; control characters and line breaks in text are escaped."""
    if value is None:
        return Text("–", "dim")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, int):
        return Text(f"{value:,}")
    if isinstance(value, float):
        return Text(f"{value:.4g}")
    return value if isinstance(value, Text) else Text(one_line(str(value)))


def shape(sizes: Sequence[int]) -> str:
    """(2, 8) → "2 × 8"."""
    return " × ".join(f"{size:,}" for size in sizes)


def share(part: float) -> str:
    """0.123 → "12.3 %"."""
    return f"{100 * part:.1f} %"


def abbreviated(count: int) -> str:
    """2_500_000 → "2.5 M"."""
    return with_prefix(count, "").rstrip()


def operations(count: int) -> str:
    """2_500_000 → "2.5 MFLOP"."""
    return with_prefix(count, "FLOP")
