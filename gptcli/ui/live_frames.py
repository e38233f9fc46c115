"""A live display of frames: redrawn only when a frame differs, at once, and whole after the terminal's size changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

FRAMES_PER_SECOND = 4
BEGIN_UPDATE, END_UPDATE = "\x1b[?2026h", "\x1b[?2026l"
"""Between these a terminal shows nothing new, so that no half-drawn frame is seen; others ignore them."""
UP, ERASE_BELOW = "\x1b[{}A", "\r\x1b[J"


class Drawable(Protocol):
    """A frame."""

    def key(self) -> object:
        """A value that changes whenever the frame does."""

    def lines(self, console: Console) -> list[Text]:
        """The lines for a terminal."""


class LiveFrames(Live):
    """Shows the frame that `frame` returns, four times a second."""

    def __init__(self, frame: Callable[[], Drawable], console: Console) -> None:
        self._shown = _Shown(frame)
        self._last: object = None
        super().__init__(self._shown, console=console, refresh_per_second=FRAMES_PER_SECOND)

    def refresh(self) -> None:
        """Draw the frame if it differs from the last one, or if the display starts, stops or was changed."""
        with self._lock:
            key = (self._shown.key(), self.console.size, id(self.get_renderable()), self.is_started, self.transient)
            if key == self._last:
                return
            self._last = key
            console, file = self.console, self.console.file
            if not console.is_terminal or console.is_dumb_terminal:
                super().refresh()
                return
            file.write(BEGIN_UPDATE + self._shown.overhang(console.width))
            super().refresh()
            file.write(END_UPDATE)
            file.flush()


class _Shown:
    """The present frame as rich draws it, and the widths of the lines that it drew last."""

    def __init__(self, frame: Callable[[], Drawable]) -> None:
        self._frame = frame
        self._widths: list[int] = []
        self._width = 0

    def key(self) -> object:
        """A value that changes whenever the frame does."""
        return self._frame().key()

    def overhang(self, width: int) -> str:
        """Removes what a narrower terminal made of the last frame: it broke wide lines into several.

        rich goes up by the number of lines that it drew, and would leave the rest above.
        """
        if not self._widths or width >= self._width or width < 1:
            return ""
        more = sum(-(-max(1, line) // width) - 1 for line in self._widths)
        return UP.format(more) + ERASE_BELOW if more else ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = self._frame().lines(console)
        self._widths, self._width = [line.cell_len for line in lines], console.width
        yield Text("\n").join(lines)
