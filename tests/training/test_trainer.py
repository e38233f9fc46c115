"""The trainer alone: no folder, no clock, no signal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gptcli.config import RunConfig
from gptcli.dataset.folder import Dataset
from gptcli.training import trainer as trainers
from gptcli.training.state import TrainerState
from gptcli.training.trainer import Trainer
from tests.opens import opened_files
from tests.optimizers import EACH_OPTIMIZER
from tests.runs.small_runs import CPU, plan, run, series

KINDS: dict[str, dict[str, Any]] = {
    **EACH_OPTIMIZER,
    "experts": {"model.n_expert": 2, "optim.skip_spikes": 6.0},
    "float16": {"train.dtype": "float16", "train.micro_batch_size": 2},
}


def config(dataset: Dataset, tmp_path: Path, flags: dict[str, Any] | None = None) -> RunConfig:
    return plan(dataset, tmp_path / "run", flags).config


def tensors(trainer: Trainer) -> dict[str, Tensor]:
    state = trainer.state()
    parts = {"model": state.model, "optimizer": state.optimizer, "random": state.random}
    return {f"{part}.{name}": tensor.clone() for part in parts for name, tensor in parts[part].items()}


def update(trainer: Trainer, steps: int) -> list[float]:
    """The losses of the next updates."""
    losses = []
    for _ in range(steps):
        done = trainer.step()
        assert done is not None
        losses.append(done.loss.item())
    return losses


def check_handed_over(config: RunConfig, dataset: Dataset) -> None:
    """10 updates, a fresh trainer with the state of the first, and 10 more equal 20, bit for bit."""
    whole = Trainer(config, dataset, CPU)
    losses = update(whole, 20)
    first = Trainer(config, dataset, CPU)
    begun = update(first, 10)
    state = first.state()
    second = Trainer(config, dataset, CPU)
    torch.manual_seed(5)  # as another process would have it
    second.load_state(state)
    assert second.completed_steps == 10
    assert begun + update(second, 10) == losses
    assert second.evaluate() == whole.evaluate()
    assert second.state().scaler == whole.state().scaler
    one, other = tensors(whole), tensors(second)
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_continues_in_another_trainer(dataset: Dataset, tmp_path: Path, kind: str) -> None:
    check_handed_over(config(dataset, tmp_path, KINDS[kind]), dataset)


@pytest.mark.parametrize("part", ["model", "optimizer", "random"])
def test_control_a_state_without_a_part(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    plain = Trainer.load_state

    def forgetful(self: Trainer, state: TrainerState) -> None:
        setattr(state, part, getattr(self.state(), part))
        plain(self, state)

    monkeypatch.setattr(Trainer, "load_state", forgetful)
    with pytest.raises(AssertionError):
        check_handed_over(config(dataset, tmp_path), dataset)


def check_opens_nothing(config: RunConfig, dataset: Dataset) -> None:
    with opened_files() as opened:
        trainer = Trainer(config, dataset, CPU)
        update(trainer, 3)
        trainer.evaluate()
        Trainer(config, dataset, CPU).load_state(trainer.state())
    assert [file.path for file in opened if file.is_written] == []


def test_it_opens_no_file_for_writing(dataset: Dataset, tmp_path: Path) -> None:
    made = config(dataset, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    check_opens_nothing(made, dataset)
    assert sorted(tmp_path.rglob("*")) == before


def test_control_an_evaluation_that_writes(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = trainers.mean_loss

    def writing(batches: Any) -> float:
        (tmp_path / "log.txt").write_text("evaluated")
        return plain(batches)

    monkeypatch.setattr(trainers, "mean_loss", writing)
    with pytest.raises(AssertionError):
        check_opens_nothing(config(dataset, tmp_path), dataset)


def test_it_trains_as_a_session_does(dataset: Dataset, tmp_path: Path) -> None:
    run(dataset, tmp_path / "run")
    trainer = Trainer(config(dataset, tmp_path), dataset, CPU)
    assert dict(enumerate(update(trainer, 20), 1)) == series(tmp_path / "run", "train/loss")
    assert trainer.evaluate() == series(tmp_path / "run", "val/loss")[20]


@pytest.mark.parametrize("asks", [1, 2, 3])
def test_a_stop_between_micro_batches_changes_nothing(dataset: Dataset, tmp_path: Path, asks: int) -> None:
    """The update is done again afterwards, with the same dropout. The first micro-batch is never refused."""
    made = config(dataset, tmp_path, {"train.micro_batch_size": 1})
    whole = Trainer(made, dataset, CPU)
    losses = update(whole, 4)
    stopped = Trainer(made, dataset, CPU)
    update(stopped, 2)
    before = tensors(stopped)
    answers = iter([*[False] * (asks - 1), True])
    assert stopped.step(lambda: next(answers)) is None
    assert next(answers, None) is None, "nothing is asked after the answer"
    after = tensors(stopped)
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
    assert stopped.completed_steps == 2
    assert update(stopped, 2) == losses[2:]


def test_a_state_of_another_shape_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    other = Trainer(config(dataset, tmp_path, {"model.n_embd": 32}), dataset, CPU).state()
    with pytest.raises((KeyError, TypeError, ValueError, RuntimeError)):
        Trainer(config(dataset, tmp_path), dataset, CPU).load_state(other)


def test_an_evaluation_yields_its_progress(dataset: Dataset, tmp_path: Path) -> None:
    """500 held-out tokens are 31 whole windows of 16 and a shorter one, in batches of 4."""
    trainer = Trainer(config(dataset, tmp_path), dataset, CPU)
    seen = list(trainer.evaluation())
    assert seen == [(0, 32), *((done, 32) for done in [4, 8, 12, 16, 20, 24, 28, 31]), (32, 32)]
