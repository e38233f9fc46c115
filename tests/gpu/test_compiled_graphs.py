"""Compiling: one graph for training, one for evaluation, none that comes later; and no place where a graph breaks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from gptcli.model.experts import ExpertLoad, Experts, Routing
from gptcli.model.gpt import GPT
from gptcli.runs.samples import draw_sample
from gptcli.training.gradients import Hidden, accumulate_gradients
from gptcli.training.trainer import Trainer
from tests.gpu.small_trainer import small_trainer, step
from tests.model.variants import variant


@pytest.fixture(autouse=True)
def _compiler() -> Iterator[None]:
    """A compiler that has seen nothing."""
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def compiled_trainer(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    """A trainer that is compiled; on a CPU the graphs are captured and then run as they are.

    The validation text leaves a remainder: windows that fill no batch, and one that is shorter.
    """
    if device.type == "cpu":
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    return small_trainer(device, train__compile="on", train__eval_tokens=1000, model__dropout=0.1)


def graphs() -> int:
    """Graphs that were compiled so far."""
    return int(counters["stats"]["unique_graphs"])


def check(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = compiled_trainer(device, monkeypatch)
    step(trainer)
    trainer.evaluate()
    assert graphs() == 2
    for _ in range(2):
        step(trainer)
        trainer.evaluate()
        draw_sample(trainer.model, trainer.dataset, seed=1)
        step(trainer)
    assert graphs() == 2
    assert counters["graph_break"] == {}


def test_two_graphs_and_no_more(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    check(device, monkeypatch)


def test_control_a_batch_of_another_size(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, sizes = Trainer._next_batch, iter([4, 4, 4, 3] + 100 * [2])
    monkeypatch.setattr(Trainer, "_next_batch", lambda self: plain(self)[: next(sizes)])
    with pytest.raises(AssertionError):
        check(device, monkeypatch)


FAMILIES = [("gpt2", False), ("sinusoidal", False), ("qwen3 windows", False), ("qwen3", True)]
WITH_EXPERTS = [("mixtral", False), ("qwen3_moe", True)]


@pytest.mark.parametrize(("name", "checkpointing"), [*FAMILIES, *WITH_EXPERTS])
def test_no_graph_breaks(monkeypatch: pytest.MonkeyPatch, name: str, checkpointing: bool) -> None:
    """The whole model is one graph, with its backward pass."""
    monkeypatch.setattr(Experts, "mix_one_by_one", Experts.mix_at_once)
    model = GPT(variant(name, dropout=0.1))
    hidden = partial(model.hidden, activation_checkpointing=True) if checkpointing else model.hidden
    compiled = torch.compile(hidden, backend="aot_eager", fullgraph=True, dynamic=False)
    routing = Routing() if model.config.n_expert else None
    compiled(torch.zeros(2, model.config.block_size, dtype=torch.long), None, routing).sum().backward()
    assert graphs() == 1


def check_experts(device: torch.device, monkeypatch: pytest.MonkeyPatch, name: str, checkpointing: bool) -> None:
    """Fails unless loss, balance loss and gradients are those of the uncompiled model, in one graph without a break."""
    torch.set_float32_matmul_precision("highest")
    monkeypatch.setattr(Experts, "mix_one_by_one", Experts.mix_at_once)
    model = GPT(variant(name, block_size=32)).to(device)
    model.fill_positions()
    hidden = partial(model.hidden, activation_checkpointing=True) if checkpointing else model.hidden
    backend = "aot_eager" if device.type == "cpu" else "inductor"
    compiled = torch.compile(hidden, backend=backend, fullgraph=True, dynamic=False)
    for seed in range(3):
        ids = torch.randint(23, (4, 33), generator=torch.Generator().manual_seed(seed)).to(device)
        for one, other in zip(outcome(model, compiled, ids), outcome(model, hidden, ids), strict=True):
            assert (one - other).norm() <= 1e-4 * other.norm() + 1e-7
    assert graphs() == 1


def outcome(model: GPT, hidden: Hidden, ids: Tensor) -> list[Tensor]:
    """Loss, balance loss, and all gradients."""
    load = ExpertLoad()
    loss = accumulate_gradients(
        model, hidden, ids, micro_batch_size=2, dtype=torch.float32,
        backward=lambda loss: loss.backward(), expert_balance=0.01, spread=load,
    )  # fmt: skip
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    return [loss, load.balance_loss, *gradients]


@pytest.mark.parametrize(("name", "checkpointing"), [*WITH_EXPERTS, ("qwen3_moe", False)])
def test_compiled_experts_are_eager_ones(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, name: str, checkpointing: bool
) -> None:
    check_experts(device, monkeypatch, name, checkpointing)


def test_control_routing_that_is_lost(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    add = Routing.add

    def forgetful(self: Routing, probabilities: Tensor, chosen: Tensor) -> None:
        add(self, probabilities.detach() if torch.compiler.is_compiling() else probabilities, chosen)

    monkeypatch.setattr(Routing, "add", forgetful)
    with pytest.raises(AssertionError):
        check_experts(device, monkeypatch, "mixtral", False)
