"""The schedule ends with the stated time where updates are slower than was measured, and as planned elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gptcli.checkpoints import run_folder
from gptcli.checkpoints.run_folder import open_run
from gptcli.dataset.folder import Dataset
from gptcli.errors import StorageError
from gptcli.runs import completion, session
from gptcli.runs.events import CheckpointSaved, Event, Rescheduled, RunFinished, SaveFailed
from gptcli.runs.pace import Pace
from gptcli.runs.rescheduling import Timetable
from gptcli.training.schedule import learning_rate
from gptcli.training.trainer import Trainer
from gptcli.training.update import Update
from tests.runs.small_runs import assert_same_end, carry_out, plan, run, series

FLAGS: dict[str, Any] = {
    "train.max_steps": None,
    "train.max_time": "100s",
    "train.eval_every": 10,
    "train.patience": 1000,
    "optim.schedule": "linear",
}
MEASURED = 158
"""Updates that fit into 100 seconds by a measured pace of half a second, with evaluations every 10 updates."""


class Machine:
    """A machine on which an update takes `seconds`, and whose pace was measured as half a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.seconds = 0.0, 0.5
        plain = Trainer.step

        def step(trainer: Trainer, should_stop: Callable[[], bool]) -> Update | None:
            self.now += self.seconds
            return plain(trainer, should_stop)

        monkeypatch.setattr(completion, "measure_pace", lambda *_arguments, **_options: Pace(0.5))
        monkeypatch.setattr(session.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(Trainer, "step", step)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def rescheduled(events: list[Event]) -> list[tuple[int, int]]:
    return [(event.step, event.max_steps) for event in events if isinstance(event, Rescheduled)]


def end(events: list[Event]) -> RunFinished:
    finished = events[-1]
    assert isinstance(finished, RunFinished)
    return finished


@pytest.mark.parametrize(
    ("began", "step", "seconds", "present", "expected"),
    [
        (5, 50, 25, 200, None),  # as planned
        (5, 20, 24, 90, None),  # too early to judge
        (10, 30, 30, 200, 100),  # twice as slow
        (5, 100, 50.2, 200, None),  # off by less than a hundredth
        (5, 51, 30, 120, 165),  # faster than it was: longer again
        (5, 90, 30, 120, 200),  # never longer than the limit
        (5, 50, 100, 200, 51),  # the time is over
    ],
)
def test_the_timetable(began: float, step: int, seconds: float, present: int, expected: int | None) -> None:
    """Measured from step 10 on, which came after `began` seconds."""
    table = Timetable(100.0, 200)
    assert table.max_steps(present, 10, began) is None
    assert table.max_steps(present, step, seconds) == expected


def test_whole_intervals_are_measured() -> None:
    """A run of 1,000 steps in 1,000 seconds resumes at step 799; each 50 steps of 0.9 seconds end in an evaluation."""
    table = Timetable(1000.0, 1000)
    assert table.max_steps(1000, 800, 805.9) is None, "one update and an evaluation"
    assert table.max_steps(1000, 850, 855.9) is None, "as planned"


def test_a_slower_machine(dataset: Dataset, tmp_path: Path, machine: Machine) -> None:
    """Judged first at step 30, after a quarter of the time; the learning rate then falls to its end."""
    made = plan(dataset, tmp_path / "run", FLAGS)
    assert made.config.train.max_steps == MEASURED
    machine.seconds = 1.0
    events = run(dataset, tmp_path / "run", FLAGS)
    assert rescheduled(events) == [(30, 100)]
    assert (end(events).step, end(events).stopped) == (100, "max_steps")
    rates = series(tmp_path / "run", "train/lr")
    optim = made.config.optim
    assert rates[30] == learning_rate(optim, 29, MEASURED)
    assert rates[31] == learning_rate(optim, 30, 100)
    assert rates[100] == learning_rate(optim, 99, 100)
    assert open_run(tmp_path / "run").config.train.max_steps == 100
    assert "100 of 100" in (tmp_path / "run" / "README.md").read_text()
    assert plan(dataset, tmp_path / "run", FLAGS).finished == "max_steps"


def test_a_machine_that_was_slow_for_a_while(dataset: Dataset, tmp_path: Path, machine: Machine) -> None:
    made = plan(dataset, tmp_path / "run", FLAGS)
    machine.seconds = 1.0
    counts = []
    for event in session.carry_out(replace(made, steps_limit=MEASURED)):
        if isinstance(event, Rescheduled):
            counts.append(event.max_steps)
            machine.seconds = 0.5
    assert counts[0] == 100
    assert len(counts) > 2
    assert counts == sorted(counts)
    assert 100 < counts[-1] <= MEASURED


def test_a_faster_machine(dataset: Dataset, tmp_path: Path, machine: Machine) -> None:
    """It makes more updates, unless more than planned would do harm."""
    assert plan(dataset, tmp_path / "run", FLAGS).config.train.max_steps == MEASURED
    machine.seconds = 0.56  # without evaluations, which this machine makes in no time
    events = run(dataset, tmp_path / "run", FLAGS)
    assert rescheduled(events)[-1][1] == pytest.approx(100 / 0.56, rel=0.011)
    assert end(events).seconds == pytest.approx(100, abs=1.5)
    machine.seconds = 0.1
    events = run(dataset, tmp_path / "much faster", FLAGS)
    assert [steps for _, steps in rescheduled(events)] == [int(1.25 * MEASURED)]


def test_resuming_keeps_the_schedule(dataset: Dataset, tmp_path: Path, machine: Machine) -> None:
    """A run that stops after its schedule has changed ends as one that does not stop."""
    for name in ("whole", "halves"):
        machine.seconds = 0.5
        assert plan(dataset, tmp_path / name, FLAGS).config.train.max_steps == MEASURED
        machine.seconds = 1.0
        if name == "halves":
            run(dataset, tmp_path / name, FLAGS, stop_after=55)
        run(dataset, tmp_path / name, FLAGS)
    assert_same_end(tmp_path / "whole", tmp_path / "halves")


def test_a_kill_after_the_number_was_stored(dataset: Dataset, tmp_path: Path, machine: Machine) -> None:
    """The run resumes at the checkpoint before, by the new number."""
    made = plan(dataset, tmp_path / "run", FLAGS)
    machine.seconds = 1.0
    for event in session.carry_out(made):
        if isinstance(event, Rescheduled):
            break
    resumed = plan(dataset, tmp_path / "run", FLAGS)
    assert (resumed.begin, resumed.config.train.max_steps) == (20, 100)
    events = carry_out(resumed)
    assert (end(events).step, rescheduled(events)) == (100, [])
    assert series(tmp_path / "run", "train/lr")[30] == learning_rate(made.config.optim, 29, 100)


def test_stated_steps_stay(dataset: Dataset, tmp_path: Path, machine: Machine) -> None:
    """The time ends the training where it is; the control has a schedule that follows the time."""
    machine.seconds = 1.0
    for name, budget in {"steps": {"train.max_steps": MEASURED}, "epochs": {"train.epochs": 2.0}}.items():
        events = run(dataset, tmp_path / name, FLAGS | budget)
        assert rescheduled(events) == []
        assert (end(events).step, end(events).stopped) == (100, "max_time")
    assert rescheduled(run(dataset, tmp_path / "control", FLAGS))


def test_the_limit(dataset: Dataset, tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a number of which nothing but the time is stated may change, and it grows only where the time limits it."""
    path = tmp_path / "run"
    file = {"train": {"max_steps": 50, "max_time": "1h"}}
    assert plan(dataset, path, FLAGS).steps_limit == int(1.25 * MEASURED)
    assert plan(dataset, path, FLAGS, file=file).steps_limit == int(1.25 * MEASURED), "the call states another time"
    assert plan(dataset, path, {"train.max_steps": None, "train.eval_every": 10}, file=file).steps_limit is None
    assert plan(dataset, path, FLAGS | {"train.max_steps": 20}).steps_limit is None
    assert plan(dataset, path, FLAGS | {"train.epochs": 1.0}).steps_limit is None
    run(dataset, path, FLAGS, stop_after=2)
    assert plan(dataset, path, FLAGS).steps_limit == MEASURED, "the reason for this number is no longer known"
    assert plan(dataset, path, {"train.max_steps": None}).steps_limit is None, "the steps may have been stated"


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_full_disk_leaves_the_schedule(
    dataset: Dataset, tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """The config on the disk is that of the training, whichever write of it fails."""
    made = plan(dataset, tmp_path / "run", FLAGS)
    machine.seconds = 1.0
    writes = count(1)
    plain = run_folder.write_file

    def write_file(path: Path, content: bytes) -> None:
        if path.parent.name == "run" and not path.name.startswith("README") and next(writes) == fails_at:
            raise StorageError("The disk is full.")
        plain(path, content)

    failed = []
    for event in session.carry_out(made):
        if isinstance(event, CheckpointSaved) and event.step == 20:
            monkeypatch.setattr(run_folder, "write_file", write_file)
        if isinstance(event, SaveFailed):
            failed.append(event.step)
            assert open_run(tmp_path / "run").config.train.max_steps == MEASURED
        elif isinstance(event, Rescheduled):
            assert open_run(tmp_path / "run").config.train.max_steps == event.max_steps == 100
    assert failed == [30]
