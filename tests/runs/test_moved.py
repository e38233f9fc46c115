"""A run folder that is moved or deleted during training: the training is saved, and the session ends."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptcli.checkpoints.checkpoint import read_progress
from gptcli.dataset.folder import Dataset
from gptcli.generation.loaded_model import open_model
from gptcli.runs.events import CheckpointSaved, EvalMetrics, Event, SaveFailed, StepMetrics
from gptcli.runs.saving import RunMoved
from gptcli.runs.session import carry_out
from gptcli.storage import FolderLock
from tests.runs.small_runs import assert_same_end, lines, plan, run, series, without_times


def train_and(
    act: Callable[[], object], when: Callable[[Event], bool], dataset: Dataset, path: Path, flags: dict[str, Any]
) -> RunMoved:
    """Train, and `act` at the first event for which `when` is true; the error that ends the session."""
    acted: list[Event] = []
    failures: list[Event] = []

    def consume() -> None:
        for event in carry_out(plan(dataset, path, flags)):
            if acted and isinstance(event, SaveFailed):
                failures.append(event)
            if when(event) and not acted:
                acted.append(event)
                act()

    with pytest.raises(RunMoved) as caught:
        consume()
    assert acted
    assert failures == [], "the error at the end says what happened"
    assert caught.value.exit_code == 1
    return caught.value


def after_step(step: int) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, StepMetrics) and event.step == step


def delete(path: Path) -> None:
    """Delete a folder to which TensorBoard's thread may be writing."""
    while path.exists():
        shutil.rmtree(path, ignore_errors=True)


def place_in(error: RunMoved) -> Path:
    """The folder in which the checkpoint is, by the error's message."""
    return Path(re.findall(r"'([^']*)'", error.message)[-1])


FLAGS: dict[str, Any] = {"train.eval_every": 5, "train.save_every": 8}


@pytest.mark.parametrize("step", [2, 6, 9, 18])
def test_a_renamed_folder(dataset: Dataset, tmp_path: Path, step: int) -> None:
    """Before and after evaluations and checkpoints; nothing is made at the old place."""
    path, moved = tmp_path / "run", tmp_path / "elsewhere/renamed"
    moved.parent.mkdir()
    run(dataset, tmp_path / "whole", FLAGS)
    error = train_and(lambda: path.rename(moved), after_step(step), dataset, path, FLAGS)
    assert not path.exists()
    assert place_in(error) == moved
    assert f"'{path}'" in error.message
    assert f"`out = {moved}`" in error.hint
    progress = read_progress(moved)
    assert progress is not None
    assert f"step {progress.step}" in error.message
    assert progress.step >= step
    run(dataset, moved, FLAGS)
    assert_same_end(moved, tmp_path / "whole")
    assert [without_times(line) for line in lines(moved)] == [without_times(line) for line in lines(tmp_path / "whole")]
    assert (moved / "model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


@pytest.mark.parametrize("step", [2, 4])
def test_a_deleted_folder(dataset: Dataset, tmp_path: Path, step: int) -> None:
    """It is made again. What the log had is gone; the training is not."""
    path = tmp_path / "run"
    run(dataset, tmp_path / "whole", FLAGS)
    error = train_and(lambda: delete(path), after_step(step), dataset, path, FLAGS)
    assert place_in(error) == path
    progress = read_progress(path)
    assert progress is not None
    assert progress.step == 5
    run(dataset, path, FLAGS)
    assert_same_end(path, tmp_path / "whole")
    whole = series(tmp_path / "whole", "train/loss")
    assert series(path, "train/loss") == {number: whole[number] for number in range(6, 21)}
    assert (path / "model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


def test_a_deleted_folder_has_no_best_weights(dataset: Dataset, tmp_path: Path) -> None:
    """The counters do not name weights that are gone: the next evaluation gives new ones."""
    path = tmp_path / "run"
    flags = FLAGS | {"train.eval_every": 4, "train.save_every": 6}
    train_and(
        lambda: delete(path),
        lambda event: isinstance(event, EvalMetrics) and event.step == 4,
        dataset,
        path,
        flags,
    )
    progress = read_progress(path)
    assert progress is not None
    assert (progress.step, progress.best_step, progress.best_val_loss) == (6, None, None)
    run(dataset, path, flags)
    assert open_model(path).step in (8, 12, 16, 20)


def test_a_folder_that_is_made_again_by_another_session(dataset: Dataset, tmp_path: Path) -> None:
    """The other run is left alone; the moved one is saved."""
    path, moved = tmp_path / "run", tmp_path / "moved"

    def move() -> None:
        path.rename(moved)
        run(dataset, path, FLAGS, stop_after=1)

    error = train_and(move, after_step(2), dataset, path, FLAGS)
    assert place_in(error) == moved
    progress = read_progress(path)
    assert progress is not None
    assert progress.step == 1


def test_control_a_session_that_does_not_look(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FolderLock, "moved", lambda self: False)
    with pytest.raises(pytest.fail.Exception):
        test_a_renamed_folder(dataset, tmp_path, 2)
    assert (tmp_path / "run").exists(), "checkpoints were saved at the old place"


def test_a_moved_and_returned_folder_is_no_reason_to_end(dataset: Dataset, tmp_path: Path) -> None:
    run(dataset, tmp_path / "whole", FLAGS)
    path = tmp_path / "run"
    for event in carry_out(plan(dataset, path, FLAGS)):
        if isinstance(event, StepMetrics) and event.step in (2, 11):
            path.rename(tmp_path / "away")
        elif isinstance(event, StepMetrics) and event.step in (4, 13):
            (tmp_path / "away").rename(path)
        assert not (isinstance(event, CheckpointSaved) and not path.exists())
    assert_same_end(path, tmp_path / "whole")
