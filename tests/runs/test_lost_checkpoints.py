"""Runs whose folder `checkpoints` is empty, missing or elsewhere: nothing that was trained is overwritten."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptcli.checkpoints.tensors import read_metadata
from gptcli.dataset.folder import Dataset
from gptcli.errors import ModelFolderError, StorageError
from gptcli.runs import decision, saving
from gptcli.runs import plan as plans
from gptcli.runs.decision import Resume
from gptcli.training.trainer import Trainer
from gptcli.training.update import Update
from tests.runs.small_runs import assert_same_end, lines, plan, run, without_times


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def killed_at(monkeypatch: pytest.MonkeyPatch, step: int, dataset: Dataset, path: Path, flags: dict[str, Any]) -> None:
    """Train, and die in the update after `step`, with nothing saved."""
    plain = Trainer.step

    def step_or_die(self: Trainer, should_stop: Callable[[], bool]) -> Update | None:
        if self.completed_steps == step:
            raise KeyboardInterrupt
        return plain(self, should_stop)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", step_or_die)
        with pytest.raises(KeyboardInterrupt):
            run(dataset, path, flags)


def check_refused(dataset: Dataset, path: Path, flags: dict[str, Any] | None = None) -> None:
    before = content(path)
    with pytest.raises(ModelFolderError, match="checkpoint") as caught:
        run(dataset, path, flags)
    assert f"'{path}'" in caught.value.message
    assert "`resume = never`" in caught.value.hint
    assert content(path) == before


@pytest.mark.parametrize("is_missing", [False, True])
@pytest.mark.parametrize("stop_after", [None, 7])
def test_a_run_shorter_than_its_first_save_is_refused_too(
    dataset: Dataset, tmp_path: Path, is_missing: bool, stop_after: int | None
) -> None:
    """The last save of a session comes at any step; the model card shows that there was one."""
    path = tmp_path / "run"
    run(dataset, path, {"train.save_every": 500}, stop_after=stop_after)
    shutil.rmtree(path / "checkpoints")
    if not is_missing:
        (path / "checkpoints").mkdir()
    check_refused(dataset, path, {"train.max_steps": 30, "train.save_every": 500})


@pytest.mark.parametrize("steps", [20, 17])
@pytest.mark.parametrize("is_missing", [False, True])
def test_emptied_checkpoints_are_refused(dataset: Dataset, tmp_path: Path, steps: int, is_missing: bool) -> None:
    """Finished or stopped: the log and the best weights stay."""
    path = tmp_path / "run"
    run(dataset, path, stop_after=steps)
    shutil.rmtree(path / "checkpoints")
    if not is_missing:
        (path / "checkpoints").mkdir()
    check_refused(dataset, path, {"train.max_steps": 30})


def test_emptied_checkpoints_without_best_weights_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    """The log alone shows that checkpoints were saved."""
    flags = {"train.eval_every": 100, "train.save_every": 5}
    run(dataset, tmp_path / "run", flags, stop_after=12)
    shutil.rmtree(tmp_path / "run/checkpoints")
    (tmp_path / "run/checkpoints").mkdir()
    assert not (tmp_path / "run/model.safetensors").exists()
    check_refused(dataset, tmp_path / "run", flags)


def test_control_a_run_that_starts_over(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_weights_to_start_over", lambda run, damaged: None)
    with pytest.raises(pytest.fail.Exception):
        test_emptied_checkpoints_are_refused(dataset, tmp_path, 20, False)
    assert len(lines(tmp_path / "run")) > 20, "it was trained again"


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_fine_tuned_run_that_lost_its_checkpoints_is_refused(
    dataset: Dataset, tmp_path: Path, is_missing: bool
) -> None:
    """It had one before its first step; its pretrained weights were replaced by better ones."""
    run(dataset, tmp_path / "base", {"train.max_steps": 2})
    flags = {"train.init_from": str(tmp_path / "base"), "train.eval_every": 4, "train.patience": None}
    asked = {"dataset": dataset, "path": tmp_path / "run", "flags": flags, "family": None}
    run(**asked, stop_after=8)
    assert read_metadata(tmp_path / "run/model.safetensors")["step"] != "0"
    shutil.rmtree(tmp_path / "run/checkpoints")
    if not is_missing:
        (tmp_path / "run/checkpoints").mkdir()
    before = content(tmp_path / "run")
    with pytest.raises(ModelFolderError, match="checkpoint"):
        run(**asked)
    assert content(tmp_path / "run") == before


def test_a_missing_folder_is_refused_before_the_first_save_was_due(dataset: Dataset, tmp_path: Path) -> None:
    """Each run has the folder from its first moment on."""
    run(dataset, tmp_path / "run", stop_after=5)
    shutil.rmtree(tmp_path / "run/checkpoints")
    check_refused(dataset, tmp_path / "run")


@pytest.mark.parametrize("step", [0, 4, 9])
def test_a_run_killed_before_its_first_checkpoint_starts_again(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    flags = {"train.eval_every": 3}
    run(dataset, tmp_path / "whole", flags)
    killed_at(monkeypatch, step, dataset, tmp_path / "killed", flags)
    assert (tmp_path / "killed/model.safetensors").exists() == (step > 3)
    made = plan(dataset, tmp_path / "killed", flags)
    assert isinstance(made.decision, Resume)
    assert made.checkpoint is None
    run(dataset, tmp_path / "killed", flags)
    assert_same_end(tmp_path / "killed", tmp_path / "whole")
    assert [without_times(line) for line in lines(tmp_path / "killed")] == [
        without_times(line) for line in lines(tmp_path / "whole")
    ]


@pytest.mark.parametrize(("step", "may_start_over"), [(11, True), (20, True), (21, False)])
def test_a_run_killed_while_its_first_checkpoint_was_written(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, may_start_over: bool
) -> None:
    """Training continues until the next checkpoint is due; a log that goes on shows that the first one was complete."""
    with monkeypatch.context() as patch:
        patch.setattr(saving, "save_checkpoint", lambda *arguments, **options: None)
        killed_at(patch, step, dataset, tmp_path / "run", {"train.max_steps": 40})
    assert len([line for line in lines(tmp_path / "run") if "train/loss" in line]) == step
    if may_start_over:
        assert plan(dataset, tmp_path / "run", {"train.max_steps": 40}).checkpoint is None
    else:
        check_refused(dataset, tmp_path / "run", {"train.max_steps": 40})


@pytest.mark.parametrize("name", ["metrics.jsonl", "README.md"])
def test_a_pipe_in_the_place_of_a_file_is_not_opened(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It would block. Whether the run had checkpoints shows in other files."""
    killed_at(monkeypatch, 4, dataset, tmp_path / "run", {})
    (tmp_path / "run" / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "run" / name)
    assert plan(dataset, tmp_path / "run").checkpoint is None


def linked(path: Path) -> Path:
    """Move the checkpoints of a run elsewhere, with a link in their place; their new folder."""
    place = path.parent / "elsewhere"
    (path / "checkpoints").rename(place)
    (path / "checkpoints").symlink_to(place)
    return place


def check_link_refused(dataset: Dataset, folder: Path) -> None:
    run(dataset, folder / "run", stop_after=15)
    place = linked(folder / "run")
    before, there = content(folder / "run"), content(place)
    with pytest.raises(StorageError, match="link") as caught:
        run(dataset, folder / "run")
    assert "checkpoints" in caught.value.message
    assert "`out`" in caught.value.hint
    assert (content(folder / "run"), content(place)) == (before, there)


def test_linked_checkpoints_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    check_link_refused(dataset, tmp_path)


def test_control_a_link_that_is_followed(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "_refuse_linked_checkpoints", lambda path: None)
    with pytest.raises(pytest.fail.Exception):
        check_link_refused(dataset, tmp_path)
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir())[-1] == "step-00000020"


def test_a_linked_run_folder_is_allowed(dataset: Dataset, tmp_path: Path) -> None:
    """People put `runs` on a larger disk."""
    run(dataset, tmp_path / "whole")
    run(dataset, tmp_path / "disk/run", stop_after=15)
    (tmp_path / "run").symlink_to(tmp_path / "disk/run")
    run(dataset, tmp_path / "run")
    assert_same_end(tmp_path / "run", tmp_path / "whole")
