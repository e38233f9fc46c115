"""Frames of the live display on terminals of several sizes, and what is written to draw them."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from gptcli.ui.chart import Points
from gptcli.ui.live_frames import ERASE_BELOW, LiveFrames
from gptcli.ui.training_frame import Frame

SIZES = [(80, 24), (200, 50), (40, 15)]
CONTROL = re.compile(r"\x1b\[[\d;?]*[a-zA-Z]")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def console(width: int = 80, height: int = 24, *, no_color: bool = False) -> Console:
    return Console(
        file=Terminal(), force_terminal=True, width=width, height=height, color_system="256", no_color=no_color
    )


def frame(step: int = 600, **changes: object) -> Frame:
    losses, val_losses = Points(1000), Points(1000)
    for number in range(1, step + 1):
        losses.add(number, 5 - number / 300)
    for number in range(50, step + 1, 50):
        val_losses.add(number, 5.1 - number / 300)
    figures = {"loss": "2.1034", "val": "2.2210", "best": "2.2210 at 550", "lr": "1.00e-03", "tok/s": "12,346"}
    values = {"clock": "0:12", "phase": "evaluating 40%", "figures": figures, "sample": (550, "To be,\tor 漢字" * 40)}
    return Frame(1000, step, losses=losses, val_losses=val_losses, **values | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_frame_fits_into_the_terminal(width: int, height: int) -> None:
    shown = frame(notice="Saving, then stopping. Press Ctrl-C again to quit now.")
    lines = shown.lines(console(width, height))
    assert len(lines) < height
    assert max(line.cell_len for line in lines) <= width - 3
    text = "\n".join(line.plain for line in lines)
    assert "step 600/1,000" in text
    for figure in ("evaluating 40%", "loss 2.1034", "tok/s 12,346", "── sample"):
        assert figure in text  # no figure is cut or parted


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_nothing_moves_when_figures_come_or_the_phase_changes(width: int, height: int) -> None:
    early: dict[str, object] = {"figures": {"loss": "10.8249", "lr": "1.00e-05", "tok/s": "987"}, "phase": "compiling"}
    late = {"figures": frame().figures | {"tok/s": "1,234,567"}, "phase": "evaluating 100%"}
    places = []
    for changes in (early, {"phase": "training"}, {}, late):
        lines = [line.plain for line in frame(**changes).lines(console(width, height))]
        names = ("loss ", "● val ", "best ", "lr ", "tok/s ", "┤", "── sample")
        places.append(
            [next((row, line.index(name)) for row, line in enumerate(lines) if name in line) for name in names]
        )
    assert places == [places[0]] * 4


@pytest.mark.parametrize(("width", "height"), [(1, 1), (5, 3), (20, 10), (300, 8)])
def test_a_frame_fits_into_an_odd_terminal(width: int, height: int) -> None:
    lines = frame(notice="Saving, then stopping.").lines(console(width, height))
    assert len(lines) <= height


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_curve_has_both_axes(width: int, height: int) -> None:
    lines = [line.plain for line in frame().lines(console(width, height))]
    labels = [float(line.split("┤")[0]) for line in lines if re.match(r" *[\d.]+ ┤", line)]
    assert labels == sorted(labels, reverse=True)
    assert len(labels) >= 2
    (ticks,) = (number for number, line in enumerate(lines) if "└" in line)
    assert lines[ticks + 1].split()[0] == "0"
    assert lines[ticks + 1].split()[-1] == "1,000"


def test_the_height_stays_when_the_sample_changes() -> None:
    heights = {len(frame(sample=(5, text)).lines(console())) for text in ("one line", "two\nlines", "many words " * 99)}
    assert len(heights) == 1


def live(shown: list[Frame], screen: Console) -> LiveFrames:
    made = LiveFrames(lambda: shown[0], screen)
    made.auto_refresh = False
    return made


def written(screen: Console) -> str:
    file = screen.file
    assert isinstance(file, Terminal)
    text = file.getvalue()
    file.seek(0)
    file.truncate()
    return text


def test_only_lines_that_differ_are_written() -> None:
    screen, shown = console(), [frame()]
    with live(shown, screen) as display:
        display.refresh()
        written(screen)
        display.refresh()
        assert written(screen) == ""
        shown[0] = frame(clock="0:11")
        display.refresh()
        first = written(screen)
        shown[0] = frame(clock="0:10")
        display.refresh()
        assert "0:10 left" in (second := written(screen))
        assert "┤" in first or "┤" not in second
        assert "┤" not in second
        assert "\x1b[2K" not in second, "a line that is erased first flickers"
        assert second.count("\n") == len(shown[0].lines(screen)) - 1


class Screen:
    """What a terminal shows after control sequences: those that the display uses."""

    def __init__(self) -> None:
        self.rows, self.row, self.column = [""], 0, 0

    def feed(self, text: str) -> None:
        for part in re.findall(r"\x1b\[[\d;?]*[a-zA-Z]|[\r\n]|[^\x1b\r\n]+", text):
            if part == "\n":
                self.row, self.column = self.row + 1, 0
                self.rows += [""] * (self.row + 1 - len(self.rows))
            elif part == "\r":
                self.column = 0
            elif part.endswith("A"):
                self.row = max(0, self.row - int(part[2:-1] or 1))
            elif part.endswith("K"):
                self.rows[self.row] = "" if part[2:-1] == "2" else self.rows[self.row][: self.column]
            elif part.endswith("J"):
                self.rows = [*self.rows[: self.row], self.rows[self.row][: self.column]]
            elif not part.startswith("\x1b"):
                old = self.rows[self.row].ljust(self.column)
                self.rows[self.row] = old[: self.column] + part + old[self.column + len(part) :]
                self.column += len(part)


def test_the_screen_shows_the_frame_and_nothing_else() -> None:
    """After overwritten lines, a note above, another sample, and a figure that became shorter."""
    screen, shown, seen = console(), [frame(sample=None)], Screen()
    changes = [{"clock": "0:09"}, {"phase": "training"}, {"sample": (600, "x")}, {"figures": {"loss": "1"}}]
    with live(shown, screen) as display:
        for number, change in enumerate(changes):
            shown[0] = frame(**change)
            display.refresh()
            if number == 1:
                screen.print("a note")
            seen.feed(written(screen))
            rows = "\n".join(row.rstrip() for row in seen.rows).rstrip().split("\n")
            expected = "\n".join(line.plain.rstrip() for line in shown[0].lines(screen)).rstrip().split("\n")
            assert rows[-len(expected) :] == expected
            assert rows[: -len(expected)] in ([], ["a note"])
    assert "a note" in seen.rows


def test_a_narrower_terminal_leaves_no_stale_lines() -> None:
    screen, shown = console(100, 30), [frame()]
    with live(shown, screen) as display:
        display.refresh()
        written(screen)
        screen.size = (60, 30)  # type: ignore[assignment]
        display.refresh()
        assert ERASE_BELOW in written(screen)


def test_without_colors() -> None:
    screen, shown = console(no_color=True), [frame()]
    with live(shown, screen) as display:
        display.refresh()
        shown[0] = frame(step=601)
        display.refresh()
    codes = {code for code in CONTROL.findall(written(screen)) if code.endswith("m")}
    assert codes <= {"\x1b[0m", "\x1b[1m", "\x1b[2m"}
    assert "━" in shown[0].lines(screen)[0].plain
    assert "─" in shown[0].lines(screen)[0].plain
