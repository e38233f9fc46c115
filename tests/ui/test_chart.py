"""The loss curve in braille dots."""

from __future__ import annotations

import pytest

from gptcli.ui import chart
from gptcli.ui.chart import MARK, MAX_POINTS, Points, axis, curve


@pytest.mark.parametrize("width", [1, 8, 9, 80])
@pytest.mark.parametrize("height", [1, 2, 8])
def test_the_size_is_what_was_asked(width: int, height: int) -> None:
    for points in ([], [(0.0, 1.0)], [(float(x), 1.0 / (x + 1)) for x in range(500)]):
        drawn = curve(points, x_end=500, width=width, height=height)
        assert len(drawn) == height
        assert all(len(line) == max(9, width) for line in drawn)


def dots(lines: list[str]) -> list[tuple[int, int]]:
    """(column, row) of every dot."""
    bits = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
    return sorted(
        (2 * x + column, 4 * y + row)
        for y, line in enumerate(lines)
        for x, char in enumerate(line.split("┤")[1])
        for column in range(2)
        for row in range(4)
        if ord(char) - 0x2800 & bits[column][row]
    )


def test_dots_are_where_the_points_are() -> None:
    points = [(0, 7.0), (1, 5.0), (2, 2.0), (3, 0.0)]
    assert dots(curve(points, x_end=4, width=10, height=2)) == [(0, 0), (1, 2), (2, 5), (3, 7)]


def test_gaps_are_filled_with_a_straight_line() -> None:
    assert dots(curve([(0, 7.0), (7, 0.0)], x_end=8, width=12, height=2)) == [(n, n) for n in range(8)]


def test_points_of_one_column_are_averaged() -> None:
    drawn = curve([(0, 0.0), (0.1, 7.0), (0.2, 3.5), (1, 7.0), (2, 0.0)], x_end=4, width=10, height=2)
    assert dots(drawn)[0] in ((0, 3), (0, 4))


def test_ends_are_labelled() -> None:
    drawn = curve([(0, 4.17), (9, 1.5)], x_end=10, width=30, height=3)
    assert [line.split("┤")[0] for line in drawn] == ["  4.17 ", "       ", "  1.50 "]


def test_a_flat_line_and_a_point_beyond_the_end() -> None:
    assert dots(curve([(0, 2.0), (99, 2.0)], x_end=10, width=10, height=2)) == [(n, 0) for n in range(4)]
    assert curve([(3, 1.0)], x_end=0, width=10, height=1)


@pytest.mark.parametrize("width", [1, 9, 20, 30, 80, 200])
@pytest.mark.parametrize("steps", [1, 333, 2000, 123456])
def test_the_axis_is_as_wide_as_the_curve(width: int, steps: int) -> None:
    assert {len(line) for line in axis(x_end=steps, width=width)} == {max(9, width)}


def test_ticks_stand_over_their_numbers() -> None:
    ticks, numbers = axis(x_end=2000, width=80)
    assert numbers.split() == ["0", "500", "1,000", "1,500", "2,000"]
    middle = numbers.index("1,000") + 2
    assert ticks[middle] == "┬"
    assert axis(x_end=2000, width=30)[1].split() == ["0", "1,000", "2,000"]


def test_the_steps_of_a_short_training_stay_as_they_are() -> None:
    points = Points(MAX_POINTS)
    every = [(step, 4.0 / (step + 1)) for step in range(1, MAX_POINTS + 1)]
    for point in every:
        points.add(*point)
    assert points.since(0) == every
    assert points.since(1000) == every[999:]


@pytest.mark.parametrize("begin", [0, 150_000])
def test_a_long_training_is_drawn_from_few_points(begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed training begins in the middle; one with a raised budget may go beyond the end."""
    monkeypatch.setattr(chart, "MAX_POINTS", 200)
    points = Points(200_000)
    every = [(step, 4.0 - 3.0 * step / 200_000) for step in range(begin, 200_200, 7)]
    for point in every:
        points.add(*point)
    assert len(points.since(0)) == len(points) <= 201
    sizes = {"x_end": 200_000, "width": 58, "height": 8}
    few, all_of_them = (dots(curve(drawn, **sizes)) for drawn in (points.since(0), every))
    assert [column for column, _ in few] == [column for column, _ in all_of_them]
    assert all(abs(one - other) <= 1 for (_, one), (_, other) in zip(few, all_of_them, strict=True))


def test_points_without_an_axis_are_one() -> None:
    points = Points(0)
    points.add(0, 1.0)
    points.add(5, 3.0)
    assert points.since(0) == [(2.5, 2.0)]


def test_marks_lie_over_the_curve_on_the_same_axes() -> None:
    drawn = curve([(0, 4.0), (3, 1.0)], [(1, 5.0), (3, 0.0)], x_end=4, width=12, height=3)
    assert [line.count(MARK) for line in drawn] == [1, 0, 1]
    assert drawn[0].startswith("  5.00")
    assert drawn[2].startswith("  0.00")
    assert drawn[0].index(MARK) < drawn[2].index(MARK)
