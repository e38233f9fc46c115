"""The estimate of the time that a training still takes, with a clock that the tests set."""

from __future__ import annotations

from pathlib import Path

import pytest

from gptcli.dataset.folder import Dataset
from gptcli.runs.events import EvalMetrics, EvalProgress, Heartbeat, Rescheduled, StepMetrics
from gptcli.runs.rhythm import evaluation_cost
from gptcli.runs.time_left import TimeLeft
from tests.runs.small_runs import plan


class Training:
    """100 steps of 2 seconds, an evaluation every 25; `left` is the estimate."""

    def __init__(self, dataset: Dataset, path: Path, begin: int = 0, max_steps: int = 100) -> None:
        config = plan(dataset, path, {"train.max_steps": max_steps, "train.eval_every": 25}).config
        self.now = 0.0
        self.left = TimeLeft(config, dataset, begin, lambda: self.now)
        self.evaluation_cost = evaluation_cost(config, dataset)

    def step(self, number: int, *, is_logged: bool = True) -> None:
        self.now += 2.0
        if is_logged:
            figures = {"loss": 1.0, "lr": 0.1, "grad_norm": 1.0, "tokens_per_second": 1.0, "seconds": 1.0, "skipped": 0}
            self.left.observe(StepMetrics(step=number, **figures))

    def evaluate(self, step: int, seconds: float, batches: int = 5, until: int | None = None) -> None:
        """Evaluate in `batches` of equal time; only the first ones if `until` names the last."""
        self.left.observe(EvalProgress(step, 0, batches))
        for done in range(1, batches + 1)[:until]:
            self.now += seconds / batches
            self.left.observe(EvalProgress(step, done, batches))
        if until is None:
            self.left.observe(EvalMetrics(step=step, loss=1, bits_per_byte=1, best_loss=1, best_step=step, seconds=1))


@pytest.fixture
def training(dataset: Dataset, tmp_path: Path) -> Training:
    return Training(dataset, tmp_path / "run")


def test_another_number_of_steps(training: Training) -> None:
    for number in range(1, 11):
        training.step(number)
    training.left.observe(Rescheduled(10, 50))
    assert training.left.seconds() == pytest.approx(40 * 2 + 2 * 2 * training.evaluation_cost)


def test_unknown_before_the_second_step(training: Training) -> None:
    assert training.left.seconds() is None
    training.step(1)
    assert training.left.seconds() is None
    training.step(2)
    assert training.left.seconds() is not None


def test_evaluations_count_before_the_first_one(training: Training) -> None:
    """500 held-out tokens at a third of an update's work of 64 tokens, four times."""
    for number in range(1, 11):
        training.step(number)
    assert training.evaluation_cost == pytest.approx(500 / 64 / 3)
    assert training.left.seconds() == pytest.approx(90 * 2 + 4 * 2 * training.evaluation_cost)


def test_a_measured_evaluation_replaces_the_estimate(training: Training) -> None:
    for number in range(1, 26):
        training.step(number)
    training.evaluate(25, seconds=50.0)
    assert training.left.seconds() == pytest.approx(75 * 2 + 3 * 50)
    training.step(26)
    assert training.left.seconds() == pytest.approx(74 * 2 + 3 * 50), "its time is not taken for that of steps"


def test_the_rest_of_a_running_evaluation_counts(training: Training) -> None:
    for number in range(1, 26):
        training.step(number)
    training.evaluate(25, seconds=50.0)
    for number in range(26, 51):
        training.step(number)
    training.evaluate(50, seconds=50.0, until=2)
    assert training.left.seconds() == pytest.approx(50 * 2 + (2 + 3 / 5) * 50)


def test_the_steps_before_an_evaluation_count_although_they_are_not_logged(training: Training) -> None:
    training.step(1)
    for number in range(2, 26):
        training.step(number, is_logged=False)
    training.evaluate(25, seconds=50.0, until=0)
    assert training.left.seconds() == pytest.approx(75 * 2 + 4 * 2 * training.evaluation_cost)


@pytest.mark.parametrize("max_steps", [100, 90])
def test_the_last_evaluation(dataset: Dataset, tmp_path: Path, max_steps: int) -> None:
    """It comes after the last step, also where the rhythm does not say so, and is counted once."""
    training = Training(dataset, tmp_path / "run", max_steps=max_steps)
    for number in range(1, 26):
        training.step(number)
    training.evaluate(25, seconds=50.0)
    for number in range(26, max_steps):
        training.step(number)
    assert training.left.seconds() == pytest.approx(2 + 50)
    training.step(max_steps)
    training.evaluate(max_steps, seconds=50.0, until=3)
    assert training.left.seconds() == pytest.approx(50 * 2 / 5)
    training.evaluate(max_steps, seconds=50.0)
    assert training.left.seconds() == 0


def test_a_heartbeat_counts_as_a_step(training: Training) -> None:
    training.left.observe(Heartbeat(1))
    training.now = 20.0
    training.left.observe(Heartbeat(11))
    assert training.left.seconds() == pytest.approx(89 * 2 + 4 * 2 * training.evaluation_cost)


def test_a_finished_run_has_no_time_left(dataset: Dataset, tmp_path: Path) -> None:
    assert Training(dataset, tmp_path / "run", begin=100).left.seconds() == 0
    assert Training(dataset, tmp_path / "run", begin=99).left.seconds() is None


def test_a_resumed_run_measures_from_its_first_step(dataset: Dataset, tmp_path: Path) -> None:
    training = Training(dataset, tmp_path / "run", begin=50)
    training.now = 1000.0
    training.evaluate(50, seconds=30.0)
    for number in (51, 52, 53):
        training.step(number)
    assert training.left.seconds() == pytest.approx(47 * 2 + 2 * 30)
