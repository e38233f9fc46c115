"""What is seen of a training: a live line and a loss curve on a terminal, plain rows on a pipe."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gptcli.config import RunConfig, to_toml
from gptcli.dataset.folder import Dataset
from gptcli.model.loss import loss_in_words
from gptcli.runs.events import EvalMetrics, Event, Heartbeat, Note, RunFinished, SampleDrawn, SaveFailed, StepMetrics
from gptcli.runs.plan import Plan
from gptcli.ui.chart import Point, axis, curve
from gptcli.ui.console import Output, printable
from gptcli.ui.preparing import describe, figures

SECONDS_BETWEEN_ROWS = 30.0
LOWEST_CURVE, HIGHEST_CURVE = 6, 20
"""Lines of the loss curve, by the height of the terminal."""
LINES_BESIDE_CURVE = 14
"""What the terminal shows besides: four lines of the display, and some of what was said before."""
FALL_SHARE = 0.03
"""Share of the steps so far, the first ones, that the curve leaves out: the steep fall there would flatten the rest."""


class TrainingDisplay:
    """Shows events as they come, of a training that goes on from `step`; use it as a context."""

    def __init__(self, output: Output, config: RunConfig, step: int = 0) -> None:
        self._output = output
        self._max_steps = config.train.max_steps or 0
        self._started = time.monotonic()
        self._first_step: int | None = None
        self._last_row = time.monotonic()
        self._now = step
        self._step: StepMetrics | None = None
        self._eval: EvalMetrics | None = None
        self._losses: list[Point] = []
        self._spikes = 0
        console = output.err
        self._console = console
        live = console.is_terminal and not output.quiet
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4) if live else None

    def __enter__(self) -> TrainingDisplay:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, event: Event) -> None:
        """Take in one event."""
        if isinstance(event, StepMetrics | Heartbeat):
            self._take_step(event)
        elif isinstance(event, EvalMetrics):
            self._eval, self._now = event, event.step
            self._row()
        elif isinstance(event, SampleDrawn):
            self._print(Text(f"── sample at step {event.step:,} ──", "dim"), Text(printable(event.text)))
        elif isinstance(event, SaveFailed):
            self._output.warn(event.message)
        elif isinstance(event, Note):
            self._print(Text(printable(event.text)))

    def _take_step(self, event: StepMetrics | Heartbeat) -> None:
        if self._first_step is None:
            self._first_step, self._started = event.step, time.monotonic()
        self._now = event.step
        if isinstance(event, StepMetrics):
            self._step = event
            self._losses.append((event.step, event.loss))
            self._tell_spikes(event)
        if self._live is None and time.monotonic() - self._last_row >= SECONDS_BETWEEN_ROWS:
            self._row()

    def _tell_spikes(self, event: StepMetrics) -> None:
        if event.spikes > self._spikes:
            self._spikes = event.spikes
            updates = "1 update" if event.spikes == 1 else f"{event.spikes:,} updates"
            self._print(Text(f"step {event.step:,}: {updates} skipped so far, as the loss or gradient stood out."))

    def _row(self) -> None:
        """One plain line on a pipe; on a terminal the live line says it."""
        self._last_row = time.monotonic()
        if self._live is None and not self._output.quiet:
            figures = [*self._figures(), ("left", self._time_left())]
            told = "  ".join(f"{name} {value}" for name, value in figures if value)
            self._output.note(f"step {self._now:,}/{self._max_steps:,}  {told}")

    def _print(self, *lines: Text) -> None:
        if not self._output.quiet:
            for line in lines:
                self._console.print(line, soft_wrap=self._live is None)

    def _figures(self) -> list[tuple[str, str]]:
        figures = []
        if self._step:
            figures.append(("loss", f"{self._step.loss:.4f}"))
        if self._eval:
            figures.append(("val", f"{self._eval.loss:.4f}"))
            figures.append(("best", f"{self._eval.best_loss:.4f} at {self._eval.best_step:,}"))
        if self._step:
            figures.append(("lr", f"{self._step.lr:.2e}"))
            figures.append(("tok/s", f"{self._step.tokens_per_second:,.0f}"))
        return figures

    def _time_left(self) -> str:
        """As a clock shows it; "" while nobody knows."""
        if self._now >= self._max_steps:
            return clock_time(0)
        if self._first_step is None or self._now <= self._first_step:
            return ""
        pace = (time.monotonic() - self._started) / (self._now - self._first_step)
        return clock_time(pace * (self._max_steps - self._now))

    def _render(self) -> RenderableType:
        now = self._now
        head = Table.grid(padding=(0, 1), expand=True)
        head.add_column(no_wrap=True)
        head.add_column(ratio=1)
        head.add_column(no_wrap=True)
        bar = ProgressBar(total=self._max_steps, completed=now)
        head.add_row(f"step {now:,}/{self._max_steps:,}", bar, f"{self._time_left() or '-:--'} left")
        figures = Text("  ").join(
            Text.assemble((f"{name} ", "dim"), (value, "bold")) for name, value in self._figures()
        )
        if not self._losses or self._console.options.ascii_only:
            return Group(head, figures)
        settled = [point for point in self._losses if point[0] >= FALL_SHARE * now] or self._losses
        width, room = self._console.width, self._console.height - LINES_BESIDE_CURVE
        height = min(max(room, LOWEST_CURVE), HIGHEST_CURVE)
        lines = curve(settled, x_end=self._max_steps, width=width, height=height)
        lines += axis(x_end=self._max_steps, width=width)
        return Group(head, figures, Text("\n".join(lines), "cyan", no_wrap=True))


def summary(end: RunFinished) -> str:
    """The last line of a training."""
    why = {"max_steps": "", "max_time": " (the time is up)", "patience": " (no better loss for a while)"}
    text = f"Done: {end.step:,} step{'s' * (end.step != 1)} in {clock_time(end.seconds)}{why.get(end.stopped, '')}."
    if end.best_val_loss is not None:
        text += f" Best validation loss {loss_in_words(end.best_val_loss)} at step {end.best_step:,}."
    return text


def clock_time(seconds: float) -> str:
    """65 → "1:05", 3725 → "1:02:05"."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def show_dry_run(output: Output, plan: Plan, dataset: Dataset) -> None:
    """What a training would do: the complete config on standard output, the rest as notes."""
    if output.as_json:
        data = figures(dataset) | {"dataset": None}  # it may have been made for this look only
        config = plan.config.model_dump(mode="json")
        output.json({"run": str(plan.path), "config": config, "data": data, "memory_bytes": plan.memory})
        return
    for note in [describe(dataset), *plan.notes, f"Run: {plan.path}."]:
        output.note(note)
    output.result(to_toml(plan.config).rstrip())
