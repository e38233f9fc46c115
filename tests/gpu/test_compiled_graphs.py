"""Compiling: one graph for training, one for evaluation, none that comes later; and no place where a graph breaks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch._dynamo.utils import counters

from gptcli.model.gpt import GPT
from gptcli.runs.samples import draw_sample
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


@pytest.mark.parametrize(
    ("name", "checkpointing"), [("gpt2", False), ("sinusoidal", False), ("qwen3 windows", False), ("qwen3", True)]
)
def test_no_graph_breaks(name: str, checkpointing: bool) -> None:
    """The whole model is one graph, with its backward pass."""
    model = GPT(variant(name, dropout=0.1))
    hidden = partial(model.hidden, activation_checkpointing=True) if checkpointing else model.hidden
    compiled = torch.compile(hidden, backend="aot_eager", fullgraph=True, dynamic=False)
    compiled(torch.zeros(2, model.config.block_size, dtype=torch.long), None, None).sum().backward()
    assert graphs() == 1
