"""Any split of a batch into micro-batches has the same gradient; and a gradient teaches."""

from __future__ import annotations

import pytest
import torch

from gptcli.config import ModelConfig, OptimConfig
from gptcli.model.gpt import GPT
from gptcli.training import gradients
from gptcli.training.gradients import accumulate_gradients
from gptcli.training.optimizer import Optimizer

TINY = ModelConfig(vocab_size=11, n_layer=2, n_head=2, n_embd=16, block_size=8)


def check_micro_batches() -> None:
    torch.manual_seed(0)
    model = GPT(TINY).double()
    ids = torch.randint(11, (8, 9))
    found = {}
    for size in (8, 4, 1, 3, 5, 100):  # 3 and 5 leave a smaller last one
        model.zero_grad()
        loss = accumulate_gradients(model, model.hidden, ids, size, torch.float64, lambda part: part.backward())
        found[size] = [loss, *(parameter.grad for parameter in model.parameters())]
    for tensors in found.values():
        for one, other in zip(tensors, found[8], strict=True):
            assert one is not None
            assert other is not None
            assert torch.allclose(one, other, rtol=0, atol=1e-12)


def test_micro_batches_are_one_batch() -> None:
    check_micro_batches()


def test_control_a_mean_over_each_micro_batch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = gradients.next_token_loss
    monkeypatch.setattr(gradients, "next_token_loss", lambda h, w, t: plain(h, w, t) / len(t) * 64)
    with pytest.raises(AssertionError):
        check_micro_batches()


def check_overfit() -> None:
    torch.manual_seed(0)
    model = GPT(TINY)
    optimizer = Optimizer(model, OptimConfig(lr=0.01, weight_decay=0.0), torch.float32)
    ids = torch.randint(11, (2, 9))
    for _ in range(150):
        loss = accumulate_gradients(model, model.hidden, ids, 2, torch.float32, optimizer.backward)
        optimizer.step(0.01, loss)
    assert loss.item() < 0.02


def test_one_batch_can_be_overfitted() -> None:
    check_overfit()


def test_control_a_gradient_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Optimizer, "backward", lambda self, loss: (loss * 0).backward())
    with pytest.raises(AssertionError):
        check_overfit()


def test_only_matrices_decay() -> None:
    model = GPT(TINY)
    optimizer = Optimizer(model, OptimConfig(lr=0.01, weight_decay=0.1), torch.float32)
    decay = {p: group["weight_decay"] for group in optimizer.adamw.param_groups for p in group["params"]}
    assert {parameter.dim() >= 2: decay[parameter] for parameter in model.parameters()} == {True: 0.1, False: 0.0}


@pytest.mark.parametrize(("clip", "expected"), [(0.5, 0.5), (0.0, None)])
def test_clipping(clip: float, expected: float | None) -> None:
    """The norm told is the one before clipping; 0 turns clipping off."""
    model = torch.nn.Linear(2, 2, bias=False)
    optimizer = Optimizer(model, OptimConfig(lr=0.1, grad_clip=clip), torch.float32)
    loss = (model(torch.tensor([[3.0, 4.0]])) * 10).sum()
    optimizer.backward(loss)
    kept = []
    optimizer.adamw.register_step_pre_hook(lambda *_: kept.append(model.weight.grad.norm().item()))
    norm = optimizer.step(0.1, loss)
    assert norm.item() == pytest.approx(50 * 2**0.5)
    assert kept[0] == pytest.approx(expected if expected is not None else norm.item(), rel=1e-4)
