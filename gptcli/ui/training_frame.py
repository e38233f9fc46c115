"""One frame of the live display of a training: lines of text that fit into a terminal.

step 600/1,000 ━━━━━━━━━━━━━━━━━━━━──────────── 0:12 left
evaluating 40%   loss 2.1034   ● val 2.2210   best 2.2210 at 550  lr 1.00e-03  tok/s 12,346
(the loss curve with its axes)
── sample at step 550 ──
(its first lines)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from rich.console import Console
from rich.text import Text

from gptcli.ui.chart import MARK, Point, Points, axis, curve
from gptcli.ui.console import on_terminal

LOWEST_CURVE, HIGHEST_CURVE = 6, 20
"""Lines of the loss curve, depending on the height of the terminal."""
LINES_BESIDE_CURVE = 14
"""Lines of the terminal left to the rest of the display and to earlier output."""
SAMPLE_LINES = 4
"""Lines of the latest sample at most; on a low terminal half as many."""
ECHO_WIDTH = 3
"""Columns that each line leaves free: the terminal's `^C` there must not begin another line."""
FALL_SHARE = 0.03
"""Share of the steps so far, from the first one, that the curve leaves out: their steep fall would flatten the rest."""
SHORTEST_BAR = 4
LONGEST_PHASE = len("evaluating 100%")
WIDEST = {"loss": "10.0000", "val": "10.0000", "best": "10.0000 at ", "lr": "1.00e-03", "tok/s": "1,000,000"}
"""The figures of a frame and their widest usual values: each has a place, so that nothing moves when it changes."""


@dataclass
class Frame:
    """The content of the live display at one moment."""

    max_steps: int
    step: int
    clock: str = ""
    """The time left; "" if it is not known."""
    phase: str = ""
    figures: Mapping[str, str] = field(default_factory=dict)
    """Those of `WIDEST` that are known."""
    sample: tuple[int, str] | None = None
    """Step and text of the latest sample."""
    notice: str = ""
    """A sentence below everything else."""
    losses: Points = field(default_factory=lambda: Points(0))
    val_losses: Points = field(default_factory=lambda: Points(0))

    def key(self) -> object:
        """A value that changes whenever the frame does."""
        figures = tuple(self.figures.items())
        return (self.step, self.clock, self.phase, figures, self.sample, self.notice, self.losses.added)

    def lines(self, console: Console) -> list[Text]:
        """The lines for a terminal, none wider than it, and not more than it has."""
        columns, ascii_only = max(1, console.width - ECHO_WIDTH), console.options.ascii_only
        lines = [self._head(columns, ascii_only=ascii_only), *self._figures(columns, ascii_only=ascii_only)]
        notice = [*Text(self.notice, "yellow").wrap(console, columns)] if self.notice else []
        room = console.height - len(lines) - len(notice) - 1  # the cursor's line
        sample = self._sample(console, columns, room)
        height = min(max(console.height - LINES_BESIDE_CURVE, LOWEST_CURVE), HIGHEST_CURVE)
        height = min(height, room - len(sample) - 2)
        if self.losses and not ascii_only and height >= LOWEST_CURVE - 2:
            lines += self._curve(columns, height)
        return [*lines, *sample, *notice][: max(1, console.height)]

    def _head(self, columns: int, *, ascii_only: bool) -> Text:
        begin, end = f"step {self.step:,}/{self.max_steps:,} ", f" {self.clock or '-:--'} left"
        bar = columns - len(begin) - len(end)
        if bar < SHORTEST_BAR:
            return Text((begin + end.lstrip())[:columns], no_wrap=True)
        done = round(bar * min(1.0, self.step / self.max_steps)) if self.max_steps else 0
        full, empty = ("#", "-") if ascii_only else ("━", "─")
        return Text.assemble(begin, (full * done, "magenta"), (empty * (bar - done), "dim"), end, no_wrap=True)

    def _figures(self, columns: int, *, ascii_only: bool) -> list[Text]:
        """The phase and the figures, as many on a line as fit; a place is kept for those that are not known yet."""
        items = [Text(self.phase.ljust(LONGEST_PHASE), "green")]
        for name, widest in WIDEST.items():
            shown = f"{MARK} {name}" if name == "val" and not ascii_only else name
            width = len(widest) + (len(f"{self.max_steps:,}") if name == "best" else 0)
            value = self.figures.get(name, "-" if ascii_only else "–")
            items.append(Text.assemble((f"{shown} ", "dim"), (value.ljust(width), "bold")))
        return _packed(items, columns)

    def _curve(self, columns: int, height: int) -> list[Text]:
        settled = self.losses.since(FALL_SHARE * self.step) or self.losses.since(0)
        drawn = _drawn(
            *(tuple(settled), tuple(self.val_losses.since(FALL_SHARE * self.step))), self.max_steps, columns, height
        )
        made = [Text(line, "cyan", no_wrap=True) for line in drawn]
        for line in made:
            line.highlight_regex(MARK, "yellow")
        return made

    def _sample(self, console: Console, columns: int, room: int) -> list[Text]:
        """The first lines of the latest sample, at most half of them on a low terminal."""
        if self.sample is None:
            return []
        step, text = self.sample
        most = SAMPLE_LINES if room >= LOWEST_CURVE + 2 + 1 + SAMPLE_LINES else SAMPLE_LINES // 2
        wrapped = Text(on_terminal(text).expandtabs(4)).wrap(console, columns)[:most]
        wrapped += [Text("")] * (most - len(wrapped))  # the display keeps its height
        return [Text(f"── sample at step {step:,} ──"[:columns], "dim"), *wrapped]


@lru_cache(maxsize=1)
def _drawn(
    points: tuple[Point, ...], marks: tuple[Point, ...], max_steps: int, columns: int, height: int
) -> tuple[str, ...]:
    """The curve and its axis; frames between two logged steps have the same."""
    lines = curve(points, marks, x_end=max_steps, width=columns, height=height)
    return (*lines, *axis(x_end=max_steps, width=columns))


def _packed(items: Sequence[Text], columns: int) -> list[Text]:
    """Items on lines, as many as fit on each; none is parted."""
    lines: list[Text] = []
    for item in items:
        if lines and lines[-1].cell_len + 2 + item.cell_len <= columns:
            lines[-1].append("  ").append_text(item)
        else:
            lines.append(item)
    for line in lines:
        line.no_wrap = True
        line.rstrip()
        line.highlight_regex(MARK, "yellow")
    return lines
