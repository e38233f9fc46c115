"""Twenty updates equal ten, a stop, and ten more: bit for bit, whatever the rhythms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from gptcli.checkpoints.checkpoint import load_checkpoint
from gptcli.checkpoints.model_folder import checkpoint_steps
from gptcli.checkpoints.names import checkpoint_name
from gptcli.dataset.folder import Dataset
from gptcli.errors import StorageError
from gptcli.training import trainer
from gptcli.training.evaluation import Evaluation
from gptcli.training.trainer import Trainer
from gptcli.training.update import Update
from tests.model.variants import VARIANTS
from tests.runs.small_runs import assert_same_end, carry_out, lines, plan, run, series, without_times


def check_resume(dataset: Dataset, folder: Path, stop_after: int = 10, flags: Mapping[str, Any] | None = None) -> None:
    run(dataset, folder / "whole", flags)
    run(dataset, folder / "parts", flags, stop_after=stop_after)
    torch.manual_seed(5)  # as another process would have it
    run(dataset, folder / "parts", flags)
    assert_same_end(folder / "whole", folder / "parts")
    assert [without_times(line) for line in lines(folder / "parts")] == [
        without_times(line) for line in lines(folder / "whole")
    ]
    assert (folder / "parts/model.safetensors").read_bytes() == (folder / "whole/model.safetensors").read_bytes()


@pytest.mark.parametrize("stop_after", [10, 13])
def test_ten_and_ten_are_twenty(dataset: Dataset, tmp_path: Path, stop_after: int) -> None:
    check_resume(dataset, tmp_path, stop_after)


@pytest.mark.parametrize("name", ["qwen3 windows", "qwen3_moe", "strange"])
@pytest.mark.parametrize("recompute", [False, True])
def test_every_kind_of_model_resumes(dataset: Dataset, tmp_path: Path, name: str, *, recompute: bool) -> None:
    knobs = {f"model.{key}": value for key, value in VARIANTS[name].items()}
    size = {"model.n_head": 4, "train.activation_checkpointing": recompute}
    check_resume(dataset, tmp_path, 13, size | knobs)


def test_control_without_the_random_state(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "restore_random_states", lambda states, device: None)
    with pytest.raises(AssertionError):
        check_resume(dataset, tmp_path)


def test_control_without_the_optimizer(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer.Optimizer, "load_tensors", lambda self, tensors: None)
    with pytest.raises(AssertionError):
        check_resume(dataset, tmp_path)


RHYTHMS = [
    {"train.eval_every": 3, "train.save_every": 7, "train.log_every": 2, "train.sample_every": 4},
    {"train.eval_every": 20, "train.save_every": 1, "train.log_every": 20, "train.sample_every": 0},
    {"train.eval_every": 1, "train.save_every": 20, "train.log_every": 7, "train.sample_every": 9},
]
COUNTERS = ("val_loss", "best_val_loss", "best_step", "evals_since_best")


def check_rhythms(dataset: Dataset, folder: Path) -> None:
    """Evaluating, logging, saving and sampling leave no trace in the weights; each session has other rhythms."""
    run(dataset, folder / "whole")
    for number, rhythm in enumerate(RHYTHMS):
        path = folder / str(number)
        run(dataset, path, RHYTHMS[number - 1] | {"train.patience": 100}, stop_after=5 + number)
        run(dataset, path, rhythm)
        assert_same_end(folder / "whole", path, leaving_out=COUNTERS)
        whole = series(folder / "whole", "train/loss")
        assert {step: whole[step] for step in series(path, "train/loss")} == series(path, "train/loss")
        assert series(path, "val/loss")[20] == series(folder / "whole", "val/loss")[20]


def test_rhythms_leave_no_trace(dataset: Dataset, tmp_path: Path) -> None:
    check_rhythms(dataset, tmp_path)


def test_control_an_evaluation_that_draws_a_number(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = trainer.evaluation_batches

    def drawing(*arguments: Any, **options: Any) -> Evaluation:
        torch.rand(())
        return plain(*arguments, **options)

    monkeypatch.setattr(trainer, "evaluation_batches", drawing)
    with pytest.raises(AssertionError):
        check_rhythms(dataset, tmp_path)


def test_the_number_of_threads_is_stored_and_restored(dataset: Dataset, tmp_path: Path) -> None:
    torch.set_num_threads(2)
    run(dataset, tmp_path / "run", stop_after=3)
    torch.set_num_threads(1)
    run(dataset, tmp_path / "run", stop_after=3)
    assert torch.get_num_threads() == 2


def test_a_killed_run_resumes_from_its_last_checkpoint(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(dataset, tmp_path / "whole")
    with monkeypatch.context() as patch:
        plain = Trainer.step

        def step_or_die(self: Trainer, should_stop: Callable[[], bool]) -> Update | None:
            if self.completed_steps == 14:
                raise KeyboardInterrupt
            return plain(self, should_stop)

        patch.setattr(Trainer, "step", step_or_die)
        with pytest.raises(KeyboardInterrupt):
            run(dataset, tmp_path / "killed")
    assert max(series(tmp_path / "killed", "train/loss")) == 14
    run(dataset, tmp_path / "killed")
    assert_same_end(tmp_path / "whole", tmp_path / "killed")
    assert series(tmp_path / "killed", "train/loss") == series(tmp_path / "whole", "train/loss")


def test_a_damaged_newest_checkpoint_costs_only_time(dataset: Dataset, tmp_path: Path) -> None:
    """Training resumes from the one before, reaches the step again, and saves a sound checkpoint in its place."""
    flags = {"train.save_every": 5, "train.keep_checkpoints": 3}
    run(dataset, tmp_path / "whole", flags)
    run(dataset, tmp_path / "run", flags, stop_after=15)
    (tmp_path / "run/checkpoints/step-00000015/optimizer.safetensors").write_bytes(b"half")
    made = plan(dataset, tmp_path / "run", flags)
    assert "step 15" in made.notes[0]
    assert "optimizer.safetensors" in made.notes[0]
    assert "at step 10" in made.notes[1]
    run(dataset, tmp_path / "run", flags)
    assert_same_end(tmp_path / "whole", tmp_path / "run")
    assert series(tmp_path / "run", "train/loss") == series(tmp_path / "whole", "train/loss")
    for step in checkpoint_steps(tmp_path / "run"):
        assert load_checkpoint(tmp_path / "run/checkpoints" / checkpoint_name(step)).progress.step == step
    assert checkpoint_steps(tmp_path / "run") == [10, 15, 20]


def test_a_run_that_another_process_has_just_begun(dataset: Dataset, tmp_path: Path) -> None:
    """Two trainings planned the same new run; the other one made it first."""
    made = plan(dataset, tmp_path / "run")
    run(dataset, tmp_path / "run", stop_after=1)
    with pytest.raises(StorageError, match="Another process has just begun"):
        carry_out(made)
