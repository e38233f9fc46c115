"""Any split of a batch into micro-batches gives the same gradient, and training with it lowers the loss."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from gptcli.config import ModelConfig, OptimConfig
from gptcli.model import gpt
from gptcli.model.experts import ExpertLoad, Routing
from gptcli.model.gpt import GPT
from gptcli.training.gradients import accumulate_gradients
from gptcli.training.optimizer import Optimizer
from tests.model.variants import variant

TINY = ModelConfig(vocab_size=11, n_layer=2, n_head=2, n_embd=16, block_size=8)
MODERN = ("gpt2", "qwen3", "qwen3_moe", "strange")
"""Variants that together have every kind of part."""


def check_micro_batches(name: str) -> None:
    torch.manual_seed(0)
    model = GPT(variant(name)).double()
    ids = torch.randint(11, (8, 9))
    found = {}
    for size in (8, 4, 2, 1, 3, 5, 100):  # 3 and 5 leave a smaller last one
        model.zero_grad()
        spread = ExpertLoad()
        loss = accumulate_gradients(
            model,
            model.hidden,
            ids,
            micro_batch_size=size,
            dtype=torch.float64,
            backward=lambda part: part.backward(),
            expert_balance=0.5,
            spread=spread,
        )
        found[size] = [loss, spread.balance_loss, spread.loads, *(p.grad for p in model.parameters())]
    for tensors in found.values():
        for one, other in zip(tensors, found[8], strict=True):
            assert one is not None
            assert other is not None
            assert torch.allclose(one.double(), other.double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MODERN)
def test_micro_batches_are_one_batch(name: str) -> None:
    check_micro_batches(name)


def test_control_a_mean_over_each_micro_batch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = GPT.summed_loss
    monkeypatch.setattr(GPT, "summed_loss", lambda self, h, t: plain(self, h, t) / t.numel() * 64)
    with pytest.raises(AssertionError):
        check_micro_batches("gpt2")


def test_control_a_balance_over_each_micro_batch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Routing.add
    monkeypatch.setattr(Routing, "add", lambda self, p, c: plain(self, p.flatten(0, 1)[None], c.flatten(0, 1)[None]))
    with pytest.raises(AssertionError):
        check_micro_batches("qwen3_moe")


def check_balance_loss() -> None:
    """Its gradient moves routers from one favourite towards an even distribution."""
    torch.manual_seed(0)
    model = GPT(variant("experts", n_expert_active=1))
    with torch.no_grad():
        for block in model.h:
            block.mlp.router.weight[0] += 0.3 * block.ln_2.weight.sign()
            block.ln_2.bias.fill_(1.0)  # so that every token likes expert 0
    ids = torch.randint(23, (4, 13))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    spreads = []
    for _ in range(60):
        model.zero_grad()
        spreads.append(ExpertLoad())
        accumulate_gradients(
            model,
            model.hidden,
            ids,
            micro_batch_size=4,
            dtype=torch.float32,
            backward=lambda part: part.backward(),
            expert_balance=1.0,
            spread=spreads[-1],
        )
        optimizer.step()
    assert spreads[0].largest_load() == 1
    assert spreads[0].balance_loss > 2
    assert spreads[-1].largest_load() < 0.7
    assert spreads[-1].balance_loss < 1.3


def test_the_balance_loss_balances() -> None:
    check_balance_loss()


def test_control_without_a_balance_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Routing.balance_loss
    monkeypatch.setattr(Routing, "balance_loss", lambda self: plain(self).detach())
    with pytest.raises(AssertionError):
        check_balance_loss()


def check_recomputing(name: str, dropout: float) -> None:
    """Recomputed activations give the same gradients and random stream, bit for bit."""
    found = []
    for setting in (False, True):
        torch.manual_seed(0)
        model = GPT(variant(name, dropout=dropout))
        ids = torch.randint(23, (4, 13))
        spread, hidden = ExpertLoad(), partial(model.hidden, activation_checkpointing=setting)
        loss = accumulate_gradients(
            model,
            hidden,
            ids,
            micro_batch_size=2,
            dtype=torch.float32,
            backward=lambda part: part.backward(),
            expert_balance=0.5,
            spread=spread,
        )
        gradients = [parameter.grad for parameter in model.parameters()]
        found.append([loss, spread.balance_loss, spread.loads, torch.get_rng_state(), *gradients])
    for one, other in zip(*found, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("name", MODERN)
def test_recomputing_activations_changes_no_bit(name: str, dropout: float) -> None:
    check_recomputing(name, dropout)


def test_control_another_dropout_when_recomputing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpt, "checkpoint", partial(gpt.checkpoint, preserve_rng_state=False))
    with pytest.raises(AssertionError):
        check_recomputing("gpt2", 0.2)


def check_overfit(name: str) -> None:
    torch.manual_seed(0)
    model = GPT(variant(name))
    optimizer = Optimizer(model, OptimConfig(lr=0.01, weight_decay=0.0), torch.float32)
    ids = torch.randperm(23)[:18].view(2, 9)  # no token twice, so that each tells the next
    for _ in range(150):
        loss = accumulate_gradients(
            model,
            model.hidden,
            ids,
            micro_batch_size=2,
            dtype=torch.float32,
            backward=optimizer.backward,
            expert_balance=0.01,
        )
        optimizer.step(0.01, loss)
    assert loss.item() < 0.02


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "qwen3_moe"])
def test_one_batch_can_be_overfitted(name: str) -> None:
    check_overfit(name)


def test_control_a_gradient_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Optimizer, "backward", lambda self, loss: (loss * 0).backward())
    with pytest.raises(AssertionError):
        check_overfit("gpt2")


def test_only_matrices_decay() -> None:
    model = GPT(TINY)
    optimizer = Optimizer(model, OptimConfig(lr=0.01, weight_decay=0.1), torch.float32)
    decay = {p: group["weight_decay"] for group in optimizer.adamw.param_groups for p in group["params"]}
    assert {parameter.dim() >= 2: decay[parameter] for parameter in model.parameters()} == {True: 0.1, False: 0.0}


@pytest.mark.parametrize(("clip", "expected"), [(0.5, 0.5), (0.0, None)])
def test_clipping(clip: float, expected: float | None) -> None:
    """The reported norm is the one before clipping; 0 turns clipping off."""
    model = torch.nn.Linear(2, 2, bias=False)
    optimizer = Optimizer(model, OptimConfig(lr=0.1, grad_clip=clip), torch.float32)
    loss = (model(torch.tensor([[3.0, 4.0]])) * 10).sum()
    optimizer.backward(loss)
    kept = []
    optimizer.adamw.register_step_pre_hook(lambda *_: kept.append(model.weight.grad.norm().item()))
    norm = optimizer.step(0.1, loss)
    assert norm.item() == pytest.approx(50 * 2**0.5)
    assert kept[0] == pytest.approx(expected if expected is not None else norm.item(), rel=1e-4)
