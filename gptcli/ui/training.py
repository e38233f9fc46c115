"""The display of a training: a live line and a loss curve on a terminal, plain rows on a pipe."""

from __future__ import annotations

import time
from contextlib import ExitStack

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from gptcli.config import to_toml
from gptcli.errors import counted
from gptcli.model.loss import loss_in_words
from gptcli.runs.events import (
    CheckpointBegun,
    CheckpointSaved,
    CompilingBegun,
    EvalMetrics,
    EvalProgress,
    Event,
    Heartbeat,
    Note,
    Planned,
    Preparing,
    Rescheduled,
    Resumed,
    RunFinished,
    SampleDrawn,
    SaveFailed,
    StepMetrics,
)
from gptcli.runs.plan import Plan
from gptcli.runs.time_left import TimeLeft
from gptcli.ui.chart import Points
from gptcli.ui.choice import choice_facts, choice_table
from gptcli.ui.console import Output, live_display, on_terminal, printable, wording
from gptcli.ui.live_frames import LiveFrames
from gptcli.ui.preparing import PreparingDisplay, describe, figures, show_skipped
from gptcli.ui.training_frame import Frame

SECONDS_BETWEEN_ROWS = 30.0
SECONDS_OF_A_LONG_SAVE = 3.0
"""Time after which a save that is in progress is shown."""


class TrainingDisplay:
    """A context that shows the events of a training from preparing the data to its end."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._console = output.err
        self._open = ExitStack()
        self._preparing: PreparingDisplay | None = None
        self._progress: _Progress | None = None

    def __enter__(self) -> TrainingDisplay:
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if self._progress:
            self._progress.notice = ""
        self._open.close()
        if self._preparing and not self._progress and isinstance(error, KeyboardInterrupt):
            self._preparing.announce_interruption(error)

    def announce_stop(self) -> None:
        """Say that the training saves and stops. Safe in a signal handler: a live display shows it when it redraws."""
        text = "Saving, then stopping. Press Ctrl-C again to quit now."
        if self._progress and self._progress.live:
            self._progress.notice = text
        else:
            self._output.warn(text)

    def show(self, event: Event) -> None:
        """Show an event."""
        if isinstance(event, Preparing) and event.stage == "measuring":
            self._open.close()  # the bars of preparing
            if self._console.is_terminal and not self._output.quiet:
                spinner = Spinner("dots", "Measuring the speed of this machine")
                self._open.enter_context(live_display(Live(spinner, console=self._console, transient=True)))
        elif isinstance(event, Preparing):
            if self._preparing is None:
                self._preparing = self._open.enter_context(PreparingDisplay(self._output))
            self._preparing.update(event.stage, event.done_bytes, event.total_bytes)
        elif isinstance(event, Planned):
            self._open.close()
            self._progress = _Progress(self._output, event.plan)
            if self._progress.live:
                self._open.enter_context(live_display(self._progress.live))
        elif self._progress:
            self._progress.show(event)


class _Progress:
    """The display from the first step on."""

    def __init__(self, output: Output, plan: Plan) -> None:
        _show_notes(output, plan)
        show_skipped(output, plan.summary.skipped)
        output.detail(f"Training on {plan.device}, torch.compile {plan.config.train.compile}.")
        self._output = output
        self._max_steps = plan.config.train.max_steps or 0
        self._time_left = TimeLeft(plan.config, plan.dataset, plan.begin)
        self._last_row = time.monotonic()
        self._now = plan.begin
        self._step: StepMetrics | None = None
        self._eval: EvalMetrics | None = None
        self._evaluating: EvalProgress | None = None
        self._saving: tuple[int, float] | None = None  # the step of the save in progress, and when it began
        self._losses, self._val_losses = Points(self._max_steps), Points(self._max_steps)
        self._spikes = 0
        self._compiling = False
        self._rescheduled = False
        self._sample: tuple[int, str] | None = None
        self._console = output.err
        live = self._console.is_terminal and not output.quiet
        self.live = LiveFrames(self.frame, self._console) if live else None
        self.notice = ""
        """A sentence below the live display."""

    def show(self, event: Event) -> None:
        self._time_left.observe(event)
        if isinstance(event, StepMetrics | Heartbeat):
            self._take_step(event)
        elif isinstance(event, Resumed):
            for points, earlier in ((self._losses, event.losses), (self._val_losses, event.val_losses)):
                for step, loss in earlier:
                    points.add(step, loss)
        elif isinstance(event, EvalProgress):
            self._evaluating = event
            self._row_if_time()
        elif isinstance(event, EvalMetrics):
            self._eval, self._now, self._evaluating = event, event.step, None
            self._val_losses.add(event.step, event.loss)
            self._row()
            if event.parts:
                losses = ", ".join(f"{name} {loss:.4f}" for name, loss in event.parts.items())
                self._output.detail(f"Validation loss at step {event.step:,}: {losses}.")
        elif isinstance(event, CompilingBegun):
            self._compiling = True
        elif isinstance(event, SampleDrawn) and self.live:
            self._sample = event.step, event.text
        elif isinstance(event, SampleDrawn):
            self._print(Text(f"── sample at step {event.step:,} ──", "dim"), Text(on_terminal(event.text)))
        elif isinstance(event, CheckpointBegun):
            self._saving = event.step, time.monotonic()
        elif isinstance(event, CheckpointSaved):
            self._end_save(event.step)
        elif isinstance(event, SaveFailed):
            if event.checkpoint:
                self._end_save(event.step)
            self._output.warn(event.message)
        elif isinstance(event, Rescheduled):
            self._take_schedule(event)
        elif isinstance(event, RunFinished):
            self._now = event.step
        elif isinstance(event, Note):
            self._print(Text(printable(wording.get()(event.text))))

    def _take_step(self, event: StepMetrics | Heartbeat) -> None:
        self._now, self._evaluating, self._compiling = event.step, None, False
        if isinstance(event, StepMetrics):
            self._step = event
            self._losses.add(event.step, event.loss)
            self._note_spikes(event)
        self._row_if_time()

    def _take_schedule(self, event: Rescheduled) -> None:
        if not self._rescheduled:
            pace = "take longer" if event.max_steps < self._max_steps else "are faster"
            text = f"Updates {pace} than planned: the schedule now ends at step {event.max_steps:,}"
            self._print(Text(f"{text}, and follows the speed of the machine from here on."))
        self._rescheduled, self._max_steps = True, event.max_steps

    def _end_save(self, step: int) -> None:
        if self._saving and self._saving[0] == step:  # the next save may have begun, and waits for this one
            self._saving = None

    def _note_spikes(self, event: StepMetrics) -> None:
        if event.spikes > self._spikes:
            self._spikes = event.spikes
            updates = counted(event.spikes, "update")
            self._print(Text(f"step {event.step:,}: {updates} skipped so far because of spikes in loss or gradient."))

    def _row_if_time(self) -> None:
        if self.live is None and time.monotonic() - self._last_row >= SECONDS_BETWEEN_ROWS:
            self._row()

    def _row(self) -> None:
        """Print a plain line on a pipe; on a terminal the live line shows the same."""
        self._last_row = time.monotonic()
        if self.live is None and not self._output.quiet:
            evaluated_now = self._eval is not None and self._eval.step == self._now
            shown = [*self._figures(with_evaluation=evaluated_now), ("left", self._clock())]
            values = "  ".join(f"{name} {value}" for name, value in shown if value)
            self._output.note(f"step {self._now:,}/{self._max_steps:,}  {values}")

    def _print(self, *lines: Text) -> None:
        if not self._output.quiet:
            for line in lines:
                self._console.print(line, soft_wrap=self.live is None)

    def _phase(self) -> str:
        """The present activity: training, compiling or evaluating, and saving."""
        phase = "compiling" if self._compiling else "training"
        if self._evaluating:
            phase = f"evaluating {self._evaluating.done / self._evaluating.total:.0%}"
        saving = self._saving_step()
        return phase if saving is None else f"{phase}, saving step {saving:,}"

    def _saving_step(self) -> int | None:
        """The step of a save that has been in progress for a while."""
        if self._saving is None or time.monotonic() - self._saving[1] < SECONDS_OF_A_LONG_SAVE:
            return None
        return self._saving[0]

    def _figures(self, *, with_evaluation: bool = True, with_phase: bool = True) -> list[tuple[str, str]]:
        shown = []
        if self._step:
            shown.append(("loss", f"{self._step.loss:.4f}"))
        if self._evaluating and with_phase:
            shown.append(("evaluating", f"{self._evaluating.done / self._evaluating.total:.0%}"))
        elif self._eval and with_evaluation:
            shown.append(("val", f"{self._eval.loss:.4f}"))
            shown.append(("best", f"{self._eval.best_loss:.4f} at {self._eval.best_step:,}"))
        if self._step:
            shown.append(("lr", f"{self._step.lr:.2e}"))
            shown.append(("tok/s", f"{self._step.tokens_per_second:,.0f}"))
        if with_phase and (saving := self._saving_step()) is not None:
            shown.append(("saving", f"step {saving:,}"))
        return shown

    def _clock(self) -> str:
        seconds = self._time_left.seconds()
        return "" if seconds is None else clock_time(seconds)

    def frame(self) -> Frame:
        """The present frame of the live display."""
        return Frame(
            max_steps=self._max_steps,
            step=self._now,
            clock=self._clock(),
            phase=self._phase(),
            figures=dict(self._figures(with_phase=False)),
            sample=self._sample,
            notice=self.notice,
            losses=self._losses,
            val_losses=self._val_losses,
        )


def summary(end: RunFinished) -> str:
    """One line about the end of a training."""
    why = {"max_steps": "", "max_time": " (the time is up)", "patience": " (no better loss for a while)"}
    text = f"Done: {counted(end.step, 'step')} in {clock_time(end.seconds)}{why.get(end.stopped, '')}."
    if end.best_val_loss is not None:
        best = loss_in_words(end.best_val_loss, end.best_bits_per_byte)
        text += f" Best validation loss {best} at step {end.best_step:,}."
    if end.best_step == 0 and end.step:
        text += " No update was better than the weights that it started from, and the run has those."
    return text


def clock_time(seconds: float) -> str:
    """65 → "1:05", 3725 → "1:02:05"."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _show_notes(output: Output, plan: Plan) -> None:
    output.note(describe(plan.dataset))
    if plan.choice and not output.quiet:
        output.err.print(choice_table(plan.choice))
    for note in plan.notes:
        output.note(note)


def show_dry_run(output: Output, plan: Plan) -> None:
    """Print the complete config on standard output, the rest as notes; raises the plan's refusal at the end."""
    if output.as_json:
        data = figures(plan.dataset) | {"dataset": None}  # a dry run keeps no dataset that it made
        config = plan.config.model_dump(mode="json")
        output.json(
            {
                "run": str(plan.path),
                "config": config,
                "data": data,
                "memory_bytes": plan.memory,
                "copy_bytes": plan.copy,
                "candidates": choice_facts(plan.choice) if plan.choice else [],
            }
        )
    else:
        output.result(to_toml(plan.config).rstrip())
        _show_notes(output, plan)  # last, since the config is longer than a terminal
    if plan.refusal:
        raise plan.refusal
