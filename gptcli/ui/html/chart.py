"""Line charts as inline SVG, which a browser shows without a script; `page.js` adds a cursor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gptcli.ui.html.axes import Scale, label, linear, logarithmic
from gptcli.ui.html.page import data, escaped

Point = tuple[float, float]

WIDTH, HEIGHT = 480, 260
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 12, 36
MOST_POINTS = 400
"""Points of a line; more are averaged, and a band has their range."""
FEW_POINTS = 40
"""Up to here, each point of a line has a dot."""


@dataclass(frozen=True)
class Line:
    name: str
    points: Sequence[Point]
    color: int
    """A class of `page.css`, c0 to c7."""
    thin: bool = False
    """Whether the line stays in the background."""


@dataclass(frozen=True)
class Mark:
    """The best point of a line."""

    point: Point
    text: str
    color: int


@dataclass(frozen=True)
class Chart:
    title: str
    unit: str
    """Unit of the values."""
    x_unit: str
    lines: Sequence[Line]
    log: bool = False
    """A logarithmic axis, where all values are positive."""
    from_zero: bool = False
    best: Sequence[Mark] = ()
    resumes: Sequence[float] = ()

    def markup(self) -> str:
        """The chart as a figure; "" if there is nothing to draw."""
        lines = [thinned for line in self.lines if line.points for thinned in [_Thinned(line)]]
        if not lines:
            return ""
        x, y = self._scales(lines)
        legend = "".join(
            f"<span>{swatch(one.line.color)}{escaped(one.line.name)}</span> " for one in lines if len(lines) > 1
        )
        values = {
            "names": [one.line.name for one in lines],
            "xs": [[[px, float(f"{py:.5g}")] for px, py in one.points] for one in lines],
            "left": LEFT,
            "right": WIDTH - RIGHT,
            "from": x.low,
            "to": x.high,
            "unit": self.x_unit,
        }
        scale = ", logarithmic" if y.log else ""
        words = escaped(self._in_words(lines))
        return (
            f'<figure class="chart"><figcaption><strong>{escaped(self.title)}</strong> '
            f'<span class="unit">{escaped(self.unit)}{scale}</span></figcaption>\n'
            f'<div class="legend">{legend or "&nbsp;"}</div>\n'
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" tabindex="0" aria-label="{words}">'
            f"{self._axes(x, y)}{''.join(part for one in lines for part in one.drawn(x, y))}"
            f"{''.join(self._marks(x, y))}"
            f'<line class="cursor" y1="{TOP}" y2="{HEIGHT - BOTTOM}" visibility="hidden"/></svg>\n'
            f'<output aria-live="polite"></output>{data(values)}</figure>\n'
        )

    def _scales(self, lines: Sequence[_Thinned]) -> tuple[Scale, Scale]:
        xs = [px for one in lines for px, _ in one.points]
        lows = [low for one in lines for _, low, _ in one.band] + [py for one in lines for _, py in one.points]
        highs = [high for one in lines for _, _, high in one.band] + [py for one in lines for _, py in one.points]
        x = linear(0, max(xs), LEFT, WIDTH - RIGHT)
        counts = tuple(tick for tick in x.ticks if tick <= max(xs) and tick.is_integer())  # steps, tokens or blocks
        x = Scale(0, max(xs) or 1.0, x.start, x.stop, counts)
        low, high = min(lows), max(highs)
        if self.log and low > 0:
            return x, logarithmic(low, high, HEIGHT - BOTTOM, TOP)
        return x, linear(min(0, low) if self.from_zero else low, high, HEIGHT - BOTTOM, TOP)

    def _axes(self, x: Scale, y: Scale) -> str:
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        parts = []
        for tick in y.ticks:
            at = y.place(tick)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{at + 3.5:.1f}" text-anchor="end">{label(tick)}</text>')
        for tick in x.ticks:
            at = x.place(tick)
            parts.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
            parts.append(f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{label(tick)}</text>')
        parts.append(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        parts.append(f'<text x="{right}" y="{HEIGHT - 4}" text-anchor="end">{escaped(self.x_unit)}</text>')
        return "".join(parts)

    def _marks(self, x: Scale, y: Scale) -> Iterator[str]:
        for number, step in enumerate(self.resumes):
            at = x.place(step)
            yield f'<line class="resume" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            if number == 0:
                side, shift = ("start", 4) if at < WIDTH / 2 else ("end", -4)
                yield f'<text x="{at + shift:.1f}" y="{TOP + 9}" text-anchor="{side}">resumed</text>'
        for mark in self.best:
            px, py = x.place(mark.point[0]), y.place(mark.point[1])
            yield f'<circle class="best c{mark.color}" cx="{px:.1f}" cy="{py:.1f}" r="6"/>'
            if mark.text:
                side, shift = ("start", 10) if px < WIDTH / 2 else ("end", -2)
                yield f'<text x="{px + shift:.1f}" y="{py - 12:.1f}" text-anchor="{side}">{escaped(mark.text)}</text>'

    def _in_words(self, lines: Sequence[_Thinned]) -> str:
        parts = [
            f"{one.line.name} from {label(one.points[0][1])} to {label(one.points[-1][1])}"
            + (
                f", between {label(min(ys))} and {label(max(ys))}"
                if len(ys := [py for _, py in one.points]) > 2
                else ""
            )
            for one in lines
        ]
        end = label(max(one.points[-1][0] for one in lines))
        best = "".join(f"; {mark.text}" for mark in self.best if mark.text)
        return f"{self.title} in {self.unit}, up to {self.x_unit} {end}: {'; '.join(parts)}{best}"


class _Thinned:
    """A line with at most `MOST_POINTS` points: means of neighbors, and the range that they came from."""

    def __init__(self, line: Line) -> None:
        self.line = line
        size = -(-len(line.points) // MOST_POINTS)
        groups = [line.points[start : start + size] for start in range(0, len(line.points), size)]
        self.points: list[Point] = [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]
        self.band: list[tuple[float, float, float]] = []
        if size > 1:
            self.band = [(group[-1][0], min(y for _, y in group), max(y for _, y in group)) for group in groups]

    def drawn(self, x: Scale, y: Scale) -> Iterator[str]:
        """The elements of the line."""
        if self.band:
            there = [f"{x.place(px):.1f},{y.place(high):.1f}" for px, _, high in self.band]
            back = [f"{x.place(px):.1f},{y.place(low):.1f}" for px, low, _ in reversed(self.band)]
            yield f'<path class="band f{self.line.color}" d="M{"L".join([*there, *back])}Z"/>'
        places = [f"{x.place(px):.1f},{y.place(py):.1f}" for px, py in self.points]
        kind = "line thin" if self.line.thin else "line"
        yield f'<path class="{kind} c{self.line.color} d{_dash(self.line.color)}" d="M{"L".join(places)}"/>'
        if len(places) <= FEW_POINTS and not self.line.thin:
            for px, py in (place.split(",") for place in places):
                yield f'<circle class="dot f{self.line.color}" cx="{px}" cy="{py}" r="2.4"/>'


def swatch(color: int) -> str:
    """The sign of a line in a legend."""
    return f'<i class="swatch c{color} d{_dash(color)}"></i>'


def _dash(color: int) -> int:
    """The dashes of a line, so that lines do not differ by color alone."""
    return color % 4
