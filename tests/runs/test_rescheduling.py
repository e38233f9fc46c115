"""The schedule ends with the stated time where updates are slower than was measured, and as planned elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gptcli.checkpoints.run_folder import open_run
from gptcli.dataset.folder import Dataset
from gptcli.errors import StorageError
from gptcli.runs import completion, saving, session
from gptcli.runs.events import Event, Rescheduled, RunFinished, SaveFailed
from gptcli.runs.pace import Pace
from gptcli.runs.rescheduling import Timetable
from gptcli.training.schedule import learning_rate
from gptcli.training.trainer import Trainer
from gptcli.training.update import Update
from tests.runs.small_runs import assert_same_end, plan, run, series

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
    ("step", "seconds", "present", "expected"),
    [
        (40, 20, 200, None),  # as planned
        (20, 24, 90, None),  # too early to judge
        (20, 25, 200, 80),  # two and a half times as slow
        (100, 50.2, 200, None),  # off by less than a hundredth
        (50, 40, 80, 125),  # faster than it was: longer again
        (90, 30, 120, 200),  # never longer than the most
        (50, 100, 200, 51),  # the time is over
        (10, 25, 200, None),  # no update in this session
    ],
)
def test_the_timetable(
    dataset: Dataset, tmp_path: Path, step: int, seconds: float, present: int, expected: int | None
) -> None:
    train = plan(dataset, tmp_path / "run", {"train.max_steps": 200, "train.max_time": 100.0}).config.train
    table = Timetable(train, 200, 0 if step > 10 else step, 0.0)
    assert table.max_steps(present, step, seconds) == expected


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
    for event in session.carry_out(replace(made, most_steps=MEASURED)):
        if isinstance(event, Rescheduled):
            counts.append(event.max_steps)
            machine.seconds = 0.5
    assert counts[0] == 100
    assert counts[1:] == sorted(counts[1:])
    assert 100 < counts[-1] < MEASURED


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
    made = plan(dataset, tmp_path / "limited by the text", FLAGS)
    assert rescheduled([*session.carry_out(replace(made, most_steps=MEASURED))]) == []


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


def test_stated_steps_stay(dataset: Dataset, tmp_path: Path, machine: Machine) -> None:
    """The time ends the training where it is; the control has a schedule that follows the time."""
    machine.seconds = 1.0
    for name, budget in {"steps": {"train.max_steps": MEASURED}, "epochs": {"train.epochs": 2.0}}.items():
        events = run(dataset, tmp_path / name, FLAGS | budget)
        assert rescheduled(events) == []
        assert (end(events).step, end(events).stopped) == (100, "max_time")
    assert rescheduled(run(dataset, tmp_path / "control", FLAGS))


def test_a_full_disk_leaves_the_schedule(
    dataset: Dataset, tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The config on the disk is that of the training, so that resuming is exact."""
    plain, machine.seconds = saving.update_config, 1.0
    failures = [StorageError("The disk is full.")]

    def update_config(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return plain(*arguments)

    monkeypatch.setattr(saving, "update_config", update_config)
    events = run(dataset, tmp_path / "run", FLAGS)
    assert [event.step for event in events if isinstance(event, SaveFailed)] == [30]
    assert rescheduled(events) == [(40, 100)]
