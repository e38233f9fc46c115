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
GAP = 2
"""Terminal columns between two columns of a table: the padding of one, and the place of a line."""
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
    spare: Sequence[str] = (),
) -> Group:
    """A title and a table with a head; numbers get thousands separators, and None is a dash.

    `total` is a separate last row. On a narrow terminal the last left-aligned column is folded, but not the first one;
    if the table is still too wide, columns named in `spare` are left out one after another, which a line below says,
    and if that is not enough, all columns are folded. Cells are never cut.
    """
    lines = [[cell(value) for value in row] for row in rows]
    last = None if total is None else [cell(value) for value in total]
    forms = []
    for count in range(len(spare) + 1):
        kept = [place for place, (name, _) in enumerate(columns) if name not in spare[:count]]
        parts = ([row[place] for place in kept] for row in (*lines, *([last] if last else [])))
        forms.append(_Form([columns[place] for place in kept], list(parts), has_total=last is not None))
    return Group(_heading(title), _Fitting(forms, spare))


class _Form:
    """The columns and cells of a table, of which the last row may be the total."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[Sequence[Text]], *, has_total: bool) -> None:
        self._names = [Text(one_line(name)) for name, _ in columns]
        self._aligns = [align for _, align in columns]
        self._rows, self._has_total = rows, has_total
        flexible = max((place for place, align in enumerate(self._aligns) if align == "left"), default=0)
        self._stiff = [place != flexible or place == 0 for place in range(len(columns))]
        cells = zip(*[self._names, *rows], strict=True)
        least = [
            max(_width(text, whole=whole) for text in column) for column, whole in zip(cells, self._stiff, strict=True)
        ]
        self.width = sum(least) + GAP * (len(least) - 1)
        """Terminal columns in which only the last left-aligned column is folded."""

    def table(self, *, folded: bool) -> Table:
        """The table; with `folded` every column may be."""
        made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        for name, align, stiff in zip(self._names, self._aligns, self._stiff, strict=True):
            made.add_column(name, justify=align, no_wrap=stiff and not folded, overflow="fold")
        for number, row in enumerate(self._rows, 1):
            is_total = self._has_total and number == len(self._rows)
            if is_total:
                made.add_section()
            made.add_row(*row, style="bold" if is_total else None)
        return made


def _width(text: Text, *, whole: bool) -> int:
    """Smallest width of a cell in terminal columns: of its longest word, or of the `whole` text."""
    return max(map(cell_len, [text.plain] if whole else text.plain.split()), default=0)


class _Fitting:
    """The first of several forms of a table that fits into the terminal, or the last one, folded."""

    def __init__(self, forms: Sequence[_Form], spare: Sequence[str]) -> None:
        """Each form but the first lacks one more column of `spare`."""
        self._forms, self._spare = forms, spare

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fits = [form.width <= options.max_width for form in self._forms]
        chosen = fits.index(True) if any(fits) else len(fits) - 1
        yield self._forms[chosen].table(folded=not fits[chosen])
        if chosen:
            yield Text(f"On a wider terminal also: {', '.join(self._spare[:chosen])}.", "dim")


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
