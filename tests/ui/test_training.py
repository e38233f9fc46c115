"""The display of a training: live on a terminal, plain rows on a pipe."""

from __future__ import annotations

import io
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from gptcli.checkpoints.checkpoint import Checkpoint, Progress
from gptcli.runs.events import (
    CheckpointBegun,
    CheckpointSaved,
    CompilingBegun,
    EvalMetrics,
    EvalProgress,
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
from gptcli.training.state import TrainerState
from gptcli.ui import training
from gptcli.ui.console import Output
from gptcli.ui.training import TrainingDisplay, clock_time, summary
from tests.runs.small_runs import plan, small_dataset


@pytest.fixture(scope="module")
def planned(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """1,000 steps with an evaluation every 10."""
    folder = tmp_path_factory.mktemp("planned")
    return plan(small_dataset(folder, corpus[:3000]), folder / "run", {"train.max_steps": 1000})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time in seconds, which a test sets."""
    now = [0.0]
    monkeypatch.setattr(training.time, "monotonic", lambda: now[0])
    return now


@contextmanager
def display_of(planned: Plan, output: Output | None = None) -> Iterator[TrainingDisplay]:
    with TrainingDisplay(output or Output()) as display:
        display.show(Planned(planned))
        yield display


def rows(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The rows on standard error; standard output stays empty."""
    out, err = capsys.readouterr()
    assert out == ""
    return [line for line in err.splitlines() if line.startswith("step ")]


def step(number: int, loss: float = 2.5) -> StepMetrics:
    return StepMetrics(
        step=number, loss=loss, lr=1e-3, grad_norm=0.5, tokens_per_second=12345.6, seconds=1.0, skipped=0
    )


def evaluation(number: int) -> EvalMetrics:
    return EvalMetrics(step=number, loss=2.25, bits_per_byte=3.1, best_loss=2.25, best_step=number, seconds=1.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_another_number_of_steps(planned: Plan, capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    """Said once; the rows count to the newest."""
    with display_of(planned) as display:
        for number, steps in ((10, 800), (20, 850)):
            display.show(Rescheduled(number, steps))
            display.show(evaluation(number))
    err = capsys.readouterr().err
    assert err.count("now ends at step 800") == 1
    assert err.count("now ends") == 1
    assert "step 10/800 " in err
    assert "step 20/850 " in err


def test_a_row_per_evaluation(planned: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    with display_of(planned) as display:
        for event in (step(1), step(10), evaluation(10), step(20)):
            display.show(event)
    [row] = rows(capsys)
    assert row.startswith("step 10/1,000  loss 2.5000  val 2.2500  best 2.2500 at 10  lr 1.00e-03  tok/s 12,346  left ")


def test_the_notes_of_the_plan_come_first(planned: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    with display_of(planned):
        pass
    shown = capsys.readouterr().err
    assert all(note in shown for note in planned.notes)


def test_the_time_left_is_shown_only_when_known(planned: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    """After one step of a session the pace is unknown; after the last one no time is left."""
    for number, ending in ((990, "  tok/s 12,346"), (1000, "  tok/s 12,346  left 0:00")):
        with display_of(planned) as display:
            display.show(step(number))
            display.show(evaluation(number))
        assert rows(capsys)[-1].endswith(ending)


def test_a_row_at_least_every_half_minute(
    planned: Plan, capsys: pytest.CaptureFixture[str], clock: list[float]
) -> None:
    with display_of(planned) as display:
        for number in range(1, 100, 7):
            clock[0] = float(number)
            display.show(step(number))
    assert [row.split()[1] for row in rows(capsys)] == ["36/1,000", "71/1,000"]


def test_only_the_row_of_an_evaluation_shows_its_loss(
    planned: Plan, capsys: pytest.CaptureFixture[str], clock: list[float]
) -> None:
    with display_of(planned) as display:
        display.show(step(10))
        display.show(evaluation(10))
        for number in (11, 12):
            clock[0] += 40
            display.show(step(number))
        clock[0] += 40
        display.show(Heartbeat(13))
        display.show(step(20))
        display.show(evaluation(20))
    shown = rows(capsys)
    assert [row.split()[1] for row in shown] == [f"{number}/1,000" for number in (10, 11, 12, 13, 20)]
    assert ["val 2.2500" in row for row in shown] == [True, False, False, False, True]


def test_progress_of_a_long_evaluation(planned: Plan, capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    """Rows every half minute say how much of it is done; none shows the loss of an earlier evaluation."""
    with display_of(planned) as display:
        display.show(step(10))
        display.show(evaluation(10))
        display.show(step(20))
        for done in range(1, 11):
            clock[0] += 16
            display.show(EvalProgress(20, done, 10))
        display.show(evaluation(20))
        clock[0] += 40
        display.show(step(21))
    first, *progress, last, after = rows(capsys)
    assert [re.findall(r"evaluating (\d+)%", row) for row in progress] == [["20"], ["40"], ["60"], ["80"], ["100"]]
    assert not any("val " in row for row in [*progress, after])
    assert all("val 2.2500" in row for row in (first, last))
    assert "evaluating" not in last
    assert "evaluating" not in after


def test_a_terminal_shows_the_progress_of_an_evaluation(planned: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with display_of(planned, Output(no_color=True)) as display:
        display.show(step(10))
        display.show(EvalProgress(10, 3, 10))
    assert "evaluating 30%" in re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.getvalue())


def test_the_curve_of_a_run_that_resumes_begins_with_its_earlier_losses(planned: Plan) -> None:
    progress = training._Progress(Output(), planned)
    progress.show(Resumed(400, [(100, 4.0), (400, 3.0)], [(200, 3.5)]))
    progress.show(step(401, 2.9))
    progress.show(evaluation(410))
    assert progress.frame().losses.since(0) == [(100, 4.0), (400, 3.0), (401, 2.9)]
    assert progress.frame().val_losses.since(0) == [(200, 3.5), (410, 2.25)]


def test_a_terminal_shows_what_the_training_does(planned: Plan, clock: list[float]) -> None:
    progress = training._Progress(Output(), planned)
    phases = []
    for now, event in (
        (0.0, CompilingBegun()),
        (1.0, step(1)),
        (2.0, EvalProgress(10, 2, 4)),
        (3.0, evaluation(10)),
        (4.0, CheckpointBegun(10)),
        (9.0, Heartbeat(11)),
        (10.0, CheckpointSaved(10)),
    ):
        clock[0] = now
        progress.show(event)
        phases.append(progress.frame().phase)
    saving = "training, saving step 10"
    assert phases == ["compiling", "training", "evaluating 50%", "training", "training", saving, "training"]


@pytest.mark.parametrize(("lines", "curve"), [("10", 4), ("24", 10), ("50", 20)])
def test_the_curve_is_as_high_as_the_terminal_allows(
    planned: Plan, monkeypatch: pytest.MonkeyPatch, lines: str, curve: int
) -> None:
    monkeypatch.setenv("LINES", lines)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with display_of(planned) as display:
        display.show(step(1))
    shown = terminal.getvalue()
    assert len(re.findall("┤", shown)) % curve == 0
    assert "1,000" in shown.splitlines()[-2]


def test_a_terminal_of_ascii_gets_no_curve(planned: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    with display_of(replace(planned, notes=[])) as display:
        display.show(step(1))
    terminal.seek(0)
    shown = terminal.read()
    assert "step 1/1,000" in shown
    assert "\\u" not in shown


def test_a_finished_run_has_nothing_left(planned: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    finished = replace(planned, checkpoint=Checkpoint(Progress(step=1000), TrainerState(1000, {}, {}, {})))
    with display_of(finished):
        pass
    assert "step 1,000/1,000" in terminal.getvalue()
    assert "0:00 left" in terminal.getvalue()
    assert "┤" not in terminal.getvalue(), "there is no loss to draw"


def test_quiet(planned: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    with display_of(planned, Output(quiet=True)) as display:
        for event in (step(1), EvalProgress(1, 1, 2), evaluation(1), SampleDrawn(1, "text"), Note("note")):
            display.show(event)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("text", ["[red]x[/red]", "[/]", "\x1b[2Jclear\x07", "a\nb"])
def test_samples_and_notes_are_text(planned: Plan, capsys: pytest.CaptureFixture[str], text: str) -> None:
    with display_of(planned) as display:
        capsys.readouterr()
        display.show(SampleDrawn(7, text))
        display.show(Note(text))
    printed = text.replace("\x1b", "\\x1b").replace("\x07", "\\x07")
    assert capsys.readouterr().err == f"── sample at step 7 ──\n{printed}\n{printed}\n"


def test_on_a_terminal(planned: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The live line has all figures and a curve; samples appear above it; nothing is read as markup."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    for name, value in {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    with display_of(planned, Output(no_color=True)) as display:
        for number in range(1, 60):
            display.show(step(number, 4.0 / number))
        display.show(evaluation(60))
        display.show(SampleDrawn(60, "[red]Thou[/red]"))
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.getvalue())
    for part in ("step 60/1,000", "val 2.2500", "best 2.2500 at 60", "12,346", "left", "[red]Thou[/red]", "┤"):
        assert part in shown
    assert any(0x2800 < ord(char) < 0x2900 for char in shown)


def test_measuring_is_shown_and_the_last_frame_has_the_last_step(
    planned: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with TrainingDisplay(Output(no_color=True)) as display:
        display.show(Preparing("encoding", 5, 10))
        display.show(Preparing("measuring", 0, 0))
        display.show(Planned(planned))
        assert "Measuring the speed" in plain(terminal.getvalue())
        display.show(step(370))
        display.show(RunFinished.after(Progress(step=379), "interrupted", planned.dataset, seconds=1.0))
    last = plain(terminal.getvalue()).rpartition("step ")[2]
    assert last.startswith("379/1,000")


def plain(shown: str) -> str:
    """What was written to a terminal, without control sequences."""
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown)


@pytest.mark.parametrize("quiet", [False, True])
def test_a_stop_is_announced_inside_the_live_display(
    planned: Plan, monkeypatch: pytest.MonkeyPatch, quiet: bool
) -> None:
    """A line between two redraws would leave the display there twice. At the end it says nothing of it."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with display_of(planned, Output(quiet=quiet, no_color=True)) as display:
        display.show(step(1))
        display.announce_stop()
        if quiet:
            assert "Saving" in terminal.getvalue()
            return
        assert display._progress is not None
        assert display._progress.live is not None
        display._progress.live.refresh()
        last = plain(terminal.getvalue()).splitlines()[-1]
        assert "Saving" in last
        written = len(terminal.getvalue())
    assert "Saving" not in terminal.getvalue()[written:]
    last = plain(terminal.getvalue()[written:]).splitlines()[-1]
    assert "1,000" in last
    assert len(last) + len("^C") < 80, "the terminal's echo fits on the line"


def test_a_stop_on_a_pipe(planned: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    with display_of(planned) as display:
        capsys.readouterr()
        display.announce_stop()
        assert "Saving" in capsys.readouterr().err


def test_summary(planned: Plan) -> None:
    reached = Progress(step=2500, tokens=1, val_loss=1.9, best_val_loss=1.75, best_step=2000)
    told = summary(RunFinished.after(reached, "patience", planned.dataset, seconds=165.0))
    assert all(fact in told for fact in ("2,500 steps", "2:45", "1.7500", "perplexity 5.75", "step 2,000"))
    assert f"{1.75 / math.log(2):.2f} bits per byte" in told, "each token of this text is a byte"
    told = summary(RunFinished.after(Progress(step=3), "max_steps", planned.dataset, seconds=0.2))
    assert all(fact in told for fact in ("3 steps", "0:00"))
    assert "loss" not in told
    in_vain = Progress(step=600, best_val_loss=1.2, best_step=0)
    assert "started from" in summary(RunFinished.after(in_vain, "patience", planned.dataset, seconds=1.0))
    assert "started from" not in summary(RunFinished.after(reached, "patience", planned.dataset, seconds=1.0))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (65, "1:05"), (3725, "1:02:05"), (59.6, "1:00"), (-1, "0:00")]
)
def test_durations(seconds: float, text: str) -> None:
    assert clock_time(seconds) == text


def test_a_failed_save_is_shown_despite_quiet(planned: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    with display_of(planned, Output(quiet=True)) as display:
        display.show(SaveFailed(1000, "Writing failed."))
    assert capsys.readouterr().err == "Writing failed.\n"


def test_a_save_that_lasts_is_shown(planned: Plan, capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    with display_of(planned) as display:
        for now, event in (
            (0.0, CheckpointBegun(10)),
            (1.0, evaluation(10)),
            (5.0, evaluation(11)),
            (6.0, CheckpointSaved(9)),
            (7.0, evaluation(12)),
            (8.0, CheckpointSaved(10)),
            (20.0, evaluation(13)),
        ):
            clock[0] = now
            display.show(event)
    assert ["saving step 10" in row for row in rows(capsys)] == [False, True, True, False]
