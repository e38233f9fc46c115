"""What is seen of a training: a live display on a terminal, plain rows on a pipe."""

from __future__ import annotations

import io
import re
import sys

import pytest

from gptcli.checkpoints.checkpoint import Progress
from gptcli.config import RunConfig, build_config
from gptcli.runs.events import EvalMetrics, Note, RunFinished, SampleDrawn, SaveFailed, StepMetrics
from gptcli.ui import training
from gptcli.ui.console import Output
from gptcli.ui.training import TrainingDisplay, clock_time, summary


@pytest.fixture
def config() -> RunConfig:
    return build_config("nano", {"train": {"max_steps": 1000}}, vocab_size=65)


def step(number: int, loss: float = 2.5) -> StepMetrics:
    return StepMetrics(
        step=number, loss=loss, lr=1e-3, grad_norm=0.5, tokens_per_second=12345.6, seconds=1.0, skipped=0
    )


def evaluation(number: int) -> EvalMetrics:
    return EvalMetrics(step=number, loss=2.25, bits_per_byte=3.1, best_loss=2.25, best_step=number, seconds=1.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_row_per_evaluation(config: RunConfig, capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingDisplay(Output(), config) as display:
        for event in (step(1), step(10), evaluation(10), step(20)):
            display.show(event)
    out, err = capsys.readouterr()
    assert out == ""
    [row] = err.splitlines()
    assert row.startswith("step 10/1,000  loss 2.5000  val 2.2500  best 2.2500 at 10  lr 1.00e-03  tok/s 12,346  left ")


def test_a_row_is_silent_on_what_nobody_knows(config: RunConfig, capsys: pytest.CaptureFixture[str]) -> None:
    """After one step of a session the pace is not known; after the last one of the run nothing is left."""
    for number, ending in ((990, "  tok/s 12,346\n"), (1000, "  tok/s 12,346  left 0:00\n")):
        with TrainingDisplay(Output(), config) as display:
            display.show(step(number))
            display.show(evaluation(number))
        assert capsys.readouterr().err.endswith(ending)


def test_a_row_at_least_every_half_minute(
    config: RunConfig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(training.time, "monotonic", lambda: now)
    with TrainingDisplay(Output(), config) as display:
        for number in range(1, 100, 7):
            now = float(number)
            display.show(step(number))
    rows = [line.split()[1] for line in capsys.readouterr().err.splitlines()]
    assert rows == ["36/1,000", "71/1,000"]


@pytest.mark.parametrize(("lines", "curve"), [("10", 6), ("24", 10), ("50", 20)])
def test_the_curve_is_as_high_as_the_terminal_allows(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch, lines: str, curve: int
) -> None:
    monkeypatch.setenv("LINES", lines)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with TrainingDisplay(Output(), config) as display:
        display.show(step(1))
    shown = terminal.getvalue()
    assert len(re.findall("┤", shown)) % curve == 0
    assert "1,000" in shown.splitlines()[-2]


def test_a_terminal_of_ascii_gets_no_curve(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    with TrainingDisplay(Output(), config) as display:
        display.show(step(1))
    terminal.seek(0)
    shown = terminal.read()
    assert "step 1/1,000" in shown
    assert "\\u" not in shown


def test_a_run_that_goes_on_is_shown_from_where_it_is(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is finished has nothing left, and no loss to draw."""
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with TrainingDisplay(Output(), config, 1000):
        pass
    assert "step 1,000/1,000" in terminal.getvalue()
    assert "0:00 left" in terminal.getvalue()
    assert "┤" not in terminal.getvalue()


def test_time_left(config: RunConfig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """100 steps took 10 seconds: 900 more take 90."""
    now = 0.0
    monkeypatch.setattr(training.time, "monotonic", lambda: now)
    with TrainingDisplay(Output(), config) as display:
        display.show(step(0))
        now = 10.0
        display.show(step(100))
        display.show(evaluation(100))
    assert capsys.readouterr().err.endswith("left 1:30\n")


def test_quiet(config: RunConfig, capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingDisplay(Output(quiet=True), config) as display:
        for event in (step(1), evaluation(1), SampleDrawn(1, "text"), Note("note")):
            display.show(event)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("text", ["[red]x[/red]", "[/]", "\x1b[2Jclear\x07", "a\nb"])
def test_samples_and_notes_are_text(config: RunConfig, capsys: pytest.CaptureFixture[str], text: str) -> None:
    with TrainingDisplay(Output(), config) as display:
        display.show(SampleDrawn(7, text))
        display.show(Note(text))
    printed = text.replace("\x1b", "\\x1b").replace("\x07", "\\x07")
    assert capsys.readouterr().err == f"── sample at step 7 ──\n{printed}\n{printed}\n"


def test_on_a_terminal(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The live line has all figures and a curve; samples stand above it; nothing is markup."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    for name, value in {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    with TrainingDisplay(Output(no_color=True), config) as display:
        for number in range(1, 60):
            display.show(step(number, 4.0 / number))
        display.show(evaluation(60))
        display.show(SampleDrawn(60, "[red]Thou[/red]"))
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.getvalue())
    for part in ("step 60/1,000", "val 2.2500", "best 2.2500 at 60", "12,346", "left", "[red]Thou[/red]", "┤"):
        assert part in shown
    assert any(0x2800 < ord(char) < 0x2900 for char in shown)


def test_summary() -> None:
    reached = Progress(step=2500, tokens=1, val_loss=1.9, best_val_loss=1.75, best_step=2000)
    assert summary(RunFinished.after(reached, "patience", seconds=165.0)) == (
        "Done: 2,500 steps in 2:45 (no better loss for a while). "
        "Best validation loss 1.7500 nats per token (perplexity 5.75) at step 2,000."
    )
    assert summary(RunFinished.after(Progress(step=3), "max_steps", seconds=0.2)) == "Done: 3 steps in 0:00."


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (65, "1:05"), (3725, "1:02:05"), (59.6, "1:00"), (-1, "0:00")]
)
def test_durations(seconds: float, text: str) -> None:
    assert clock_time(seconds) == text


def test_a_save_that_fails_is_told_in_its_own_words(config: RunConfig, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether training goes on is not the display's to know; --quiet does not hide it."""
    with TrainingDisplay(Output(quiet=True), config) as display:
        display.show(SaveFailed(1000, "Writing failed."))
    assert capsys.readouterr().err == "Writing failed.\n"
