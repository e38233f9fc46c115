"""A loss or gradient that is not finite never reaches weights or optimizer, and ends the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gptcli.checkpoints.checkpoint import newest_checkpoint
from gptcli.checkpoints.model_folder import checkpoint_steps
from gptcli.dataset.folder import Dataset
from gptcli.errors import NonFiniteError
from gptcli.model.gpt import GPT
from gptcli.training import trainer
from gptcli.training.evaluation import Evaluation
from gptcli.training.trainer import Trainer
from gptcli.training.update import Update
from tests.runs.small_runs import FLAGS, run, series

Poison = Callable[[GPT, Tensor], Tensor]


def in_the_gradient(value: float) -> Poison:
    def poison(model: GPT, loss: Tensor) -> Tensor:
        assert model.wpe.weight.grad is not None
        model.wpe.weight.grad[3, 5] = value
        return loss

    return poison


def in_the_loss(value: float) -> Poison:
    return lambda model, loss: torch.full_like(loss, value)


def poison_step(monkeypatch: pytest.MonkeyPatch, number: int, poison: Poison) -> None:
    """Poison the loss or gradient of update `number` (from 1)."""
    plain, calls = trainer.accumulate_gradients, iter(range(1, 1000))

    def poisoned(model: GPT, *arguments: object, **options: object) -> Tensor:
        loss = plain(model, *arguments, **options)  # type: ignore[arg-type]
        return poison(model, loss) if next(calls) == number else loss

    monkeypatch.setattr(trainer, "accumulate_gradients", poisoned)


def snapshot(self: Trainer) -> dict[str, Tensor]:
    tensors = self.model.state_dict() | {
        name: tensor for name, tensor in self.optimizer.tensors().items() if not name.startswith("skips")
    }
    return {name: tensor.clone() for name, tensor in tensors.items()}


def check_guard(
    dataset: Dataset, path: Path, monkeypatch: pytest.MonkeyPatch, poison: Poison, dtype: str = "float32"
) -> None:
    """Update 13 is poisoned: it changes no bit; the run ends at step 15, the next that is logged."""
    poison_step(monkeypatch, 13, poison)
    plain, states = Trainer.step, {}

    def watched(self: Trainer, should_stop: Callable[[], bool]) -> Update | None:
        update = plain(self, should_stop)
        states[self.completed_steps] = snapshot(self)
        return update

    monkeypatch.setattr(Trainer, "step", watched)
    flags = {"train.log_every": 5, "train.save_every": 4, "train.dtype": dtype}
    if dtype == "float16":
        run(dataset, path, flags)  # a single overflow is no failure there
    else:
        with pytest.raises(NonFiniteError, match="step 15") as caught:
            run(dataset, path, flags | {"train.save_every": 6})
        assert caught.value.exit_code == 3
        assert "step 12" in caught.value.hint
        assert checkpoint_steps(path) == [6, 12]
        checkpoint, skipped = newest_checkpoint(path)
        assert checkpoint is not None
        assert skipped == {}
        assert all(torch.isfinite(tensor).all() for tensor in checkpoint.state.model.values())
    assert states[12].keys() == states[13].keys()
    assert [name for name in states[12] if not torch.equal(states[12][name], states[13][name])] == []
    assert any(not torch.equal(states[13][name], states[14][name]) for name in states[13]), (
        "later updates change weights"
    )


POISONS = {
    "nan gradient": in_the_gradient(float("nan")),
    "infinite gradient": in_the_gradient(float("inf")),
    "nan loss": in_the_loss(float("nan")),
    "infinite loss": in_the_loss(float("inf")),
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", POISONS)
def test_bad_numbers_never_reach_the_weights(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, dtype: str
) -> None:
    check_guard(dataset, tmp_path / "run", monkeypatch, POISONS[name], dtype)


@pytest.mark.parametrize("name", ["nan gradient", "nan loss"])
def test_control_without_the_guard(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("gptcli.training.optimizer.torch.isfinite", lambda tensor: torch.ones(()).bool())
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_guard(dataset, tmp_path / "run", monkeypatch, POISONS[name])


@pytest.mark.parametrize(("lr", "hint"), [(1e30, "`optim.lr = 0.005`"), (0.004, "`optim.lr = 0.002`")])
def test_the_hint_suggests_a_useful_rate(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lr: float, hint: str
) -> None:
    poison_step(monkeypatch, 1, in_the_loss(float("nan")))
    with pytest.raises(NonFiniteError) as caught:
        run(dataset, tmp_path / "run", {"optim.lr": lr})
    assert hint in caught.value.hint


@pytest.mark.parametrize("rhythm", ["train.save_every", "train.eval_every"])
def test_a_bad_update_is_noticed_before_anything_is_saved(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rhythm: str
) -> None:
    poison_step(monkeypatch, 13, in_the_loss(float("nan")))
    quiet = {"train.log_every": 20, "train.save_every": 20, "train.eval_every": 20}
    with pytest.raises(NonFiniteError, match="step 14"):
        run(dataset, tmp_path / "run", quiet | {rhythm: 7})
    assert 14 not in checkpoint_steps(tmp_path / "run")
    assert 14 not in series(tmp_path / "run", "val/loss")


def test_a_bad_validation_loss_replaces_nothing(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([3.0, float("nan")])

    def evaluation(*_: object, **__: object) -> Evaluation:
        yield 1, 1
        return next(losses)

    monkeypatch.setattr(trainer, "evaluation_batches", evaluation)
    with pytest.raises(NonFiniteError, match=r"validation loss .* nan .*step 20"):
        run(dataset, tmp_path / "run")
    assert checkpoint_steps(tmp_path / "run") == [10]


def test_the_run_resumes_after_a_bad_update(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        poison_step(patch, 13, in_the_loss(float("nan")))
        with pytest.raises(NonFiniteError):
            run(dataset, tmp_path / "run")
    run(dataset, tmp_path / "run")
    assert series(tmp_path / "run", "train/loss").keys() == set(range(1, FLAGS["train.max_steps"] + 1))
