"""A NaN loss, an infinite gradient or a spike leaves weights, moments and counters as they were, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gptcli.model.gpt import GPT
from gptcli.training import trainer as trainer_module
from gptcli.training.spikes import WINDOW
from gptcli.training.trainer import Trainer
from tests.gpu.small_trainer import small_trainer, step

Poison = Callable[[GPT, Tensor], Tensor]


def nan_loss(model: GPT, loss: Tensor) -> Tensor:
    return torch.full_like(loss, float("nan"))


def infinite_gradient(model: GPT, loss: Tensor) -> Tensor:
    gradient = model.h[1].mlp.c_proj.weight.grad
    gradient[1, 2] = float("inf")
    return loss


def spike(model: GPT, loss: Tensor) -> Tensor:
    return 100 * loss


POISONS = {"NaN loss": nan_loss, "infinite gradient": infinite_gradient, "spike": spike}


def snapshot(trainer: Trainer) -> dict[str, Tensor]:
    """Weights, moments and AdamW's step, without the counters of skipped updates."""
    counters = ("skips", "spikes")
    optimizer = {name: part for name, part in trainer.optimizer.tensors().items() if not name.startswith(counters)}
    return {name: part.clone() for name, part in (trainer.state().model | optimizer).items()}


def skipped(trainer: Trainer) -> float:
    """Updates that were skipped so far; in float16 also the first ones, until the loss scale fits."""
    return (trainer.optimizer.skips + trainer.optimizer.skipped_spikes()).item()


def check(device: torch.device, monkeypatch: pytest.MonkeyPatch, poison: Poison, optimizer: str, dtype: str) -> None:
    trainer = small_trainer(
        device, optim__optimizer=optimizer, train__dtype=dtype, optim__skip_spikes=6.0, model__dropout=0.1
    )
    for _ in range(3):
        step(trainer)
    assert trainer.optimizer.spikes is not None
    trainer.optimizer.spikes.seen.fill_(WINDOW)  # as after many updates
    before, skipped_before = snapshot(trainer), skipped(trainer)
    plain = trainer_module.accumulate_gradients
    with monkeypatch.context() as patch:
        patch.setattr(
            trainer_module, "accumulate_gradients", lambda model, *a, **k: poison(model, plain(model, *a, **k))
        )
        step(trainer)
    after = snapshot(trainer)
    assert before.keys() == after.keys()
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
    assert skipped(trainer) == skipped_before + 1
    trainer.optimizer.spikes.seen.zero_()
    for _ in range(3):
        step(trainer)
    assert any(not torch.equal(after[name], now) for name, now in snapshot(trainer).items()), "later updates count"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("name", POISONS)
def test_nothing_changes(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, name: str, optimizer: str, dtype: str
) -> None:
    check(device, monkeypatch, POISONS[name], optimizer, dtype)


def test_control_a_guard_that_sees_nothing(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptcli.training.optimizer.torch.isfinite", lambda tensor: torch.ones_like(tensor).bool())
    with pytest.raises(AssertionError):
        check(device, monkeypatch, nan_loss, "adamw", "float32")
