"""A live display of frames that redraws only the lines that differ, without erasing what stays.

rich's own live display erases all lines before it draws them again, which flickers where a terminal is slow.
"""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any, Protocol, cast

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult
from rich.live import Live
from rich.text import Text

FRAMES_PER_SECOND = 2
"""A frame that differs takes 2.6 ms of a processor on 80 × 24 characters and 4.1 ms on 200 × 50: less than 1 % at this
rate (docs/log.md)."""
BEGIN_UPDATE, END_UPDATE = "\x1b[?2026h", "\x1b[?2026l"
"""Between these a terminal shows nothing new, so that no half-drawn frame is seen; others ignore them."""
UP, ERASE_TO_END, ERASE_BELOW = "\x1b[{}A", "\x1b[K", "\r\x1b[J"


class Drawable(Protocol):
    """A frame."""

    def key(self) -> object:
        """A value that changes whenever the frame does."""

    def lines(self, console: Console) -> list[Text]:
        """The lines for a terminal, none wider than it."""


class LiveFrames(Live):
    """Shows the frame that `frame` returns, twice a second."""

    def __init__(self, frame: Callable[[], Drawable], console: Console) -> None:
        self._shown = _Shown(frame)
        self._last: object = None
        self._painted: list[str] = []
        """The lines on the terminal; empty if they are not known."""
        super().__init__(self._shown, console=console, refresh_per_second=FRAMES_PER_SECOND)

    def refresh(self) -> None:
        """Draw the frame if it differs from the last one, or if the display starts, stops or was changed."""
        with self._lock:
            console = self.console
            usual = self.get_renderable() is self._shown and self.is_started
            key = (self._shown.key(), console.size, usual, self.transient)
            if key == self._last:
                return
            self._last = key
            if not console.is_terminal or console.is_dumb_terminal:
                super().refresh()
                return
            painted = _paint(self._shown.lines(console), console) if usual else []
            if painted and len(painted) == len(self._painted) and not self._shown.has_new_size(console):
                self._overwrite(painted)
            else:
                console.file.write(BEGIN_UPDATE + self._shown.overhang(console.width))
                super().refresh()
                console.file.write(END_UPDATE)
                console.file.flush()
            self._painted = painted

    def _overwrite(self, painted: list[str]) -> None:
        """Write the lines that differ over those of the last frame; the cursor is at the end of its last line."""
        both = zip(painted, self._painted, strict=True)
        lines = [new + ERASE_TO_END if new != old else "" for new, old in both]
        up = UP.format(len(lines) - 1) if len(lines) > 1 else ""
        self.console.file.write(BEGIN_UPDATE + "\r" + up + "\r\n".join(lines) + END_UPDATE)
        self.console.file.flush()

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Other output is printed above the frame, which is drawn again below it."""
        with self._lock:
            self._painted = []
        return super().process_renderables(renderables)


def _paint(lines: list[Text], console: Console) -> list[str]:
    """The lines with the control sequences of their styles."""
    file = StringIO()
    colors = cast(Any, console.color_system)  # a name, whose type rich does not export
    painter = Console(
        file=file, force_terminal=True, color_system=colors, no_color=console.no_color, width=console.width
    )
    for line in lines:
        painter.print(line, no_wrap=True, overflow="ignore", crop=False, highlight=False)
    return file.getvalue().split("\n")[:-1]


class _Shown:
    """The present frame as rich draws it, and the widths of the lines that it drew last."""

    def __init__(self, frame: Callable[[], Drawable]) -> None:
        self._frame = frame
        self._widths: list[int] = []
        self._size: object = None
        self._width = 0

    def key(self) -> object:
        """A value that changes whenever the frame does."""
        return self._frame().key()

    def lines(self, console: Console) -> list[Text]:
        """The lines of the present frame."""
        return self._frame().lines(console)

    def has_new_size(self, console: Console) -> bool:
        """Whether the terminal has another size than when rich drew the frame."""
        return self._size != console.size

    def overhang(self, width: int) -> str:
        """Removes what a narrower terminal made of the last frame: it broke wide lines into several.

        rich goes up by the number of lines that it drew, and would leave the rest above.
        """
        if not self._widths or width >= self._width or width < 1:
            return ""
        more = sum(-(-max(1, line) // width) - 1 for line in self._widths)
        return UP.format(more) + ERASE_BELOW if more else ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = self.lines(console)
        self._widths, self._width, self._size = [line.cell_len for line in lines], console.width, console.size
        yield Text("\n", no_wrap=True, overflow="ignore").join(lines)
