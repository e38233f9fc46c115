"""A loss curve of braille dots: each character has two columns and four rows of dots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Point = tuple[float, float]

_DOT_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of U+2800 by column and row, as Unicode numbers the dots."""
_LABEL_WIDTH = 6
ROWS_PER_LABEL = 4
MARK = "●"
MAX_POINTS = 2048
"""Points that a curve keeps at most: many for each column of dots, and few enough to draw several times a second."""


class Points:
    """Points (x, y) with x in 0 … `x_end` or a little beyond, of any number in bounded memory: neighbors are averaged.

    Up to `MAX_POINTS` steps of a training stay as they are.
    """

    def __init__(self, x_end: float) -> None:
        self._x_end = x_end
        self.added = 0
        """Points that were added, of which neighbors may share a mean."""
        self._sums: dict[int, tuple[float, float, int]] = {}  # of x and y, and their count, by share of the axis

    def __len__(self) -> int:
        return len(self._sums)

    def add(self, x: float, y: float) -> None:
        """Add a point."""
        self.added += 1
        place = int(x / self._x_end * MAX_POINTS) if self._x_end else 0
        sum_x, sum_y, count = self._sums.get(place, (0.0, 0.0, 0))
        self._sums[place] = sum_x + x, sum_y + y, count + 1

    def since(self, x: float) -> list[Point]:
        """The points from `x` on, averaged."""
        means = ((sum_x / count, sum_y / count) for sum_x, sum_y, count in self._sums.values())
        return [point for point in means if point[0] >= x]


def curve(points: Sequence[Point], marks: Sequence[Point] = (), *, x_end: float, width: int, height: int) -> list[str]:
    """Lines of text that draw points (x, y) with x in 0 … `x_end`, and each of `marks` as `MARK`.

    The y axis is labelled at its ends and, where there is room, in between. Points that share a column of dots are
    averaged, marks that share a character too; between points the line is straight.
    """
    columns = max(1, width - _LABEL_WIDTH - 2)
    means, marked = _filled(_column_means(points, x_end, 2 * columns)), _column_means(marks, x_end, columns)
    heights = [*means.values(), *marked.values()]
    low, high = (min(heights), max(heights)) if heights else (0.0, 1.0)
    span = (high - low) or 1.0
    cells = [[0] * columns for _ in range(height)]
    for column, y in means.items():
        row = round((high - y) / span * (4 * height - 1))
        cells[row // 4][column // 2] |= _DOT_BITS[column % 2][row % 4]
    drawn = [[chr(0x2800 + cell) for cell in line] for line in cells]
    for column, y in marked.items():
        drawn[round((high - y) / span * (4 * height - 1)) // 4][column] = MARK
    labels = _labels(low, high, height) if heights else {}
    return [f"{labels.get(row, ''):>{_LABEL_WIDTH}} ┤" + "".join(line) for row, line in enumerate(drawn)]


def _labels(low: float, high: float, height: int) -> dict[int, str]:
    """Values of y by row: at both ends, and at rows of equal distance between them."""
    parts = max(1, round((height - 1) / ROWS_PER_LABEL))
    rows = (round(part * (height - 1) / parts) for part in range(parts + 1))
    return {row: f"{high - (high - low) * row / max(1, height - 1):.2f}" for row in rows}


def axis(*, x_end: int, width: int) -> list[str]:
    """Two lines below a curve: an axis with ticks, and the values of x at the ticks.

    >>> axis(x_end=2000, width=30)
    ['       └┬─────────┬──────────┬', '        0       1,000    2,000']
    """
    columns = max(1, width - _LABEL_WIDTH - 2)
    parts = next((n for n in (4, 2) if columns >= n * (len(f"{x_end:,}") + 5)), 1)
    places = [round(part * (columns - 1) / parts) for part in range(parts + 1)]
    line, numbers = ["─"] * columns, [" "] * columns
    for part, place in enumerate(places):
        line[place] = "┬"
        number = f"{part * x_end // parts:,}"
        start = min(max(place - len(number) // 2, 0), max(columns - len(number), 0))
        numbers[start : start + len(number)] = number
    margin = " " * (_LABEL_WIDTH + 1)
    return [f"{margin}└{''.join(line)}", f"{margin} {''.join(numbers[:columns])}"]


def _filled(means: dict[int, float]) -> dict[int, float]:
    """The means with the columns between known ones interpolated."""
    known = sorted(means)
    filled = dict(means)
    for left, right in pairwise(known):
        for column in range(left + 1, right):
            share = (column - left) / (right - left)
            filled[column] = means[left] + share * (means[right] - means[left])
    return filled


def _column_means(points: Sequence[Point], x_end: float, columns: int) -> dict[int, float]:
    sums: dict[int, tuple[float, int]] = {}
    for x, y in points:
        column = min(columns - 1, int(x / x_end * columns)) if x_end else 0
        total, count = sums.get(column, (0.0, 0))
        sums[column] = total + y, count + 1
    return {column: total / count for column, (total, count) in sums.items()}
