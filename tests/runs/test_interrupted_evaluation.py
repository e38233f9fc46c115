"""A stop in the middle of an evaluation: saved at once, evaluated first on resume, and the same run in the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptcli.checkpoints.checkpoint import read_progress
from gptcli.checkpoints.model_folder import checkpoint_steps
from gptcli.dataset.folder import Dataset
from gptcli.report.run import list_runs
from gptcli.runs.events import CheckpointSaved, EvalMetrics, EvalProgress, Event, Resumed, RunFinished, SaveFailed
from gptcli.runs.session import Session
from tests.runs.small_runs import assert_same_end, carry_out, lines, plan, run, series, without_times

FLAGS = {"train.eval_every": 5, "train.save_every": 10, "train.sample_every": 10}


@pytest.fixture(scope="module")
def pretrained(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ten updates to fine-tune. Do not change it."""
    path = tmp_path_factory.mktemp("pretrained") / "base"
    run(dataset, path, {"train.max_steps": 10})
    return path


def during_evaluation(step: int, batches: int = 3) -> Callable[[Event | None], bool]:
    """True in the evaluation of a step after some batches, and from then on."""
    seen = [False]

    def is_reached(last: Event | None) -> bool:
        seen[0] |= isinstance(last, EvalProgress) and last.step == step and last.done >= 4 * batches
        return seen[0]

    return is_reached


def interrupt(
    dataset: Dataset, path: Path, flags: dict[str, Any], step: int, batches: int = 3, **options: Any
) -> list[Event]:
    """Train until the evaluation of a step, and stop in it; checks what is left."""
    events = carry_out(plan(dataset, path, flags, **options), stop_when=during_evaluation(step, batches))
    end = events[-1]
    assert isinstance(end, RunFinished)
    assert (end.stopped, end.step) == ("interrupted", step)
    assert not [event for event in events if isinstance(event, EvalMetrics) and event.step == step]
    assert not [event for event in events if isinstance(event, SaveFailed)]
    progress = read_progress(path)
    assert progress is not None
    assert (progress.step, progress.evaluation_pending) == (step, True)
    (summary,) = [found for found in list_runs(path.parent).runs if found.name == path.name]
    assert summary.state == "resumable"
    return events


def assert_undisturbed(one: Path, other: Path) -> None:
    assert_same_end(one, other)
    assert [without_times(line) for line in lines(one)] == [without_times(line) for line in lines(other)]
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert checkpoint_steps(one) == checkpoint_steps(other)


def check_interrupted(dataset: Dataset, folder: Path, step: int, times: int = 1) -> None:
    run(dataset, folder / "whole", FLAGS)
    for number in range(times):
        stopped = interrupt(dataset, folder / "parts", FLAGS, step, batches=number + 1)
        saved = [event.step for event in stopped if isinstance(event, CheckpointSaved)]
        assert saved == ([] if number else list(range(10, step + 1, 10))), "the second stop has nothing new to save"
    events = run(dataset, folder / "parts", FLAGS)
    first = next(
        event for event in events if not isinstance(event, EvalProgress | Resumed | str) and hasattr(event, "step")
    )
    assert isinstance(first, EvalMetrics)
    assert first.step == step
    assert_undisturbed(folder / "parts", folder / "whole")


@pytest.mark.parametrize("step", [10, 20])
@pytest.mark.parametrize("times", [1, 2])
def test_the_resumed_run_is_the_undisturbed_one(dataset: Dataset, tmp_path: Path, step: int, times: int) -> None:
    """At a step with a checkpoint and a sample, at the last step, and twice in a row."""
    check_interrupted(dataset, tmp_path, step, times)


def test_at_a_step_without_a_checkpoint(dataset: Dataset, tmp_path: Path) -> None:
    """The stop saves a checkpoint that the undisturbed run does not have; retention is all that differs."""
    run(dataset, tmp_path / "whole", FLAGS)
    interrupt(dataset, tmp_path / "parts", FLAGS, 15)
    run(dataset, tmp_path / "parts", FLAGS)
    assert_same_end(tmp_path / "parts", tmp_path / "whole")
    assert checkpoint_steps(tmp_path / "parts") == [15, 20]


def test_control_a_resume_that_forgets_the_evaluation(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Session.__init__

    def forgetful(self: Session, trainer: Any, progress: Any, *arguments: Any, **options: Any) -> None:
        progress.evaluation_pending = False
        plain(self, trainer, progress, *arguments, **options)

    monkeypatch.setattr(Session, "__init__", forgetful)
    with pytest.raises(AssertionError):
        check_interrupted(dataset, tmp_path, 10)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("step", [0, 5])
def test_fine_tuning(dataset: Dataset, tmp_path: Path, pretrained: Path, step: int, times: int) -> None:
    """Its first evaluation comes before the first update."""
    flags = FLAGS | {"train.init_from": str(pretrained), "train.patience": None}
    run(dataset, tmp_path / "whole", flags, family=None)
    for number in range(times):
        interrupt(dataset, tmp_path / "parts", flags, step, batches=number + 1, family=None)
    assert list(series(tmp_path / "whole", "sample")) == [10, 20], "no sample before the first update"
    events = run(dataset, tmp_path / "parts", flags, family=None)
    assert not [event for event in events if isinstance(event, SaveFailed)]
    assert_same_end(tmp_path / "parts", tmp_path / "whole")
    assert [without_times(line) for line in lines(tmp_path / "parts")] == [
        without_times(line) for line in lines(tmp_path / "whole")
    ]
    assert (tmp_path / "parts/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


def test_the_evaluation_of_a_finished_run_is_made_up_for(dataset: Dataset, tmp_path: Path) -> None:
    """The run has done all its steps, but does not count as finished before."""
    interrupt(dataset, tmp_path / "run", FLAGS, 20)
    assert not any("finished" in note for note in plan(dataset, tmp_path / "run", FLAGS).notes)
    events = run(dataset, tmp_path / "run", FLAGS)
    assert [event.step for event in events if isinstance(event, EvalMetrics | CheckpointSaved)] == [20, 20]
    assert isinstance(events[-1], RunFinished)
    assert events[-1].stopped == "max_steps"
    progress = read_progress(tmp_path / "run")
    assert progress is not None
    assert not progress.evaluation_pending
    assert any("finished" in note for note in plan(dataset, tmp_path / "run", FLAGS).notes)


@pytest.mark.parametrize("change", [{"train.eval_every": 7}, {"train.max_steps": 32}])
def test_it_is_made_up_for_although_it_is_no_longer_due(
    dataset: Dataset, tmp_path: Path, change: dict[str, Any]
) -> None:
    """Another rhythm or number of steps: step 13 was the last one."""
    flags = FLAGS | {"train.max_steps": 13, "train.eval_every": 6}
    interrupt(dataset, tmp_path / "run", flags, 13)
    end = run(dataset, tmp_path / "run", flags | {"train.max_steps": 20} | change)[-1]
    assert isinstance(end, RunFinished)
    assert end.stopped == "max_steps"
    assert 13 in series(tmp_path / "run", "val/loss")


def test_the_time_budget_may_have_run_out(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gptcli.runs import session

    now = [0.0]
    monkeypatch.setattr(session.time, "perf_counter", lambda: now[0])
    flags = FLAGS | {"train.max_time": 100.0}
    path = tmp_path / "run"

    def stop(last: Event | None) -> bool:
        if getattr(last, "step", 0) == 7 and not isinstance(last, EvalProgress):
            now[0] = 200.0
        return isinstance(last, EvalProgress) and last.step == 8 and last.done > 0

    carry_out(plan(dataset, path, flags), stop_when=stop)
    progress = read_progress(path)
    assert progress is not None
    assert (progress.step, progress.evaluation_pending) == (8, True)
    end = run(dataset, path, flags)[-1]
    assert isinstance(end, RunFinished)
    assert (end.stopped, end.step) == ("max_time", 8)
    assert list(series(path, "val/loss")) == [5, 8]
