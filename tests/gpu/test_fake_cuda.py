"""No operation mixes devices, and none makes the host wait: an update, an evaluation and decode steps of each family.

Run with fake CUDA tensors, which need no GPU; only the backward pass is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException

from gptcli.config import OptimConfig
from gptcli.dataset.folder import Split
from gptcli.dataset.shards import TokenStream
from gptcli.generation import context_window
from gptcli.generation.context_window import ContextWindow
from gptcli.generation.cuda_graphs import Step
from gptcli.model.gpt import GPT
from gptcli.training.evaluation import evaluation_batches
from gptcli.training.gradients import accumulate_gradients
from gptcli.training.optimizer import Optimizer
from tests.gpu.fake_cuda import CUDA, fake_cuda, fill_gradients, moved
from tests.gpu.test_decoding import replace_capture
from tests.model.variants import VARIANTS, variant

SOME = ("gpt2", "qwen3", "window")


def update(model: GPT, optimizer_name: str, dtype: torch.dtype) -> Tensor:
    """One update; its loss."""
    config = OptimConfig(lr=1e-3, optimizer=optimizer_name, skip_spikes=3.0)  # type: ignore[arg-type]
    optimizer = Optimizer(model, config, dtype)
    ids = torch.empty(4, model.config.block_size + 1, dtype=torch.long, device=CUDA)
    backward = fill_gradients(model)
    for _ in range(2):
        loss = accumulate_gradients(model, model.hidden, ids, micro_batch_size=2, dtype=dtype, backward=backward)
        optimizer.scaler.scale(loss)
        norm = optimizer.step(1e-3, loss)
    assert norm.device == CUDA
    assert all(part.device == CUDA for part in optimizer.tensors().values())
    return loss


@pytest.mark.parametrize("name", VARIANTS)
def test_an_update(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    model = GPT(variant(name, dropout=0.1))
    with fake_cuda(monkeypatch):
        assert update(moved(model), "muon", torch.bfloat16).device == CUDA


@pytest.mark.parametrize("capability", [(7, 5), (9, 0)])
def test_experts_on_older_and_newer_gpus(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    model = GPT(variant("mixtral"))
    with fake_cuda(monkeypatch, capability):
        assert update(moved(model), "adamw", torch.bfloat16).device == CUDA


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_an_update_in_each_dtype(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, optimizer: str) -> None:
    model = GPT(variant("qwen3"))
    with fake_cuda(monkeypatch):
        assert update(moved(model), optimizer, dtype).device == CUDA


def test_the_loss_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = GPT(variant("gpt2", vocab_size=2**21, n_embd=4))
    with fake_cuda(monkeypatch):
        assert update(moved(model), "adamw", torch.bfloat16).device == CUDA


@pytest.mark.parametrize("name", SOME)
def test_an_evaluation(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Only its end, where the sum is read, may wait for the device; a fake tensor has nothing to read there."""
    model = GPT(variant(name))
    tokens = 6 * model.config.block_size + 5
    split = Split(tokens, tokens, tokens, TokenStream([np.zeros(tokens, dtype=np.uint16)]))
    with fake_cuda(monkeypatch):
        batches = evaluation_batches(
            moved(model), split, batch_size=2, max_tokens=10**6, dtype=torch.bfloat16, hidden=model.hidden
        )
        windows = [done for done, total in batches_until_read(batches)]
    assert windows[-1] == 7


def batches_until_read(batches: object) -> list[tuple[int, int]]:
    """What an evaluation yields until it reads the loss."""
    found = []
    try:
        for progress in batches:  # type: ignore[attr-defined]
            found.append(progress)
    except DataDependentOutputException:
        return found
    raise AssertionError("the loss was never read")


def decode(model: GPT) -> Tensor:
    """A prompt and 12 steps, past the context window; the last logits."""
    window = ContextWindow(model, 2)
    logits = window.prefill(torch.empty(1, 3, dtype=torch.long, device=CUDA))
    for _ in range(12):
        logits = window.append(logits.argmax(-1, keepdim=True))
    assert window.slides > 0
    return logits


def as_it_is(step: Step) -> Step:
    """In place of a captured step, the step."""
    return step


@pytest.mark.parametrize(("name", "graphs"), [*((name, True) for name in VARIANTS), *((name, False) for name in SOME)])
def test_decode_steps(monkeypatch: pytest.MonkeyPatch, name: str, graphs: bool) -> None:
    model = GPT(variant(name)).eval().requires_grad_(False)
    monkeypatch.setattr(context_window, "supports_cuda_graphs", lambda model: graphs)
    replace_capture(monkeypatch, as_it_is)
    finite = SimpleNamespace(all=lambda: True)  # the one value of a prefill that the host waits for
    monkeypatch.setattr(context_window.torch, "isfinite", lambda logits: finite)
    with fake_cuda(monkeypatch):
        assert decode(moved(model)).device == CUDA


@pytest.mark.parametrize(
    ("expected", "spoil"),
    [
        (RuntimeError, lambda x: x + torch.ones(x.shape[-1])),
        (DataDependentOutputException, lambda x: x * x.sum().item()),
    ],
)
def test_control(monkeypatch: pytest.MonkeyPatch, expected: type[Exception], spoil: Callable[[Tensor], Tensor]) -> None:
    """A tensor on another device, and a value that the host waits for."""
    model = GPT(variant("gpt2"))
    norm = model.h[1].ln_2.forward
    model.h[1].ln_2.forward = lambda x: spoil(norm(x))
    with fake_cuda(monkeypatch), pytest.raises(expected):
        update(moved(model), "adamw", torch.float32)
