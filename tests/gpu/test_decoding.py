"""Decode steps that are recorded as CUDA graphs against eager ones, past the context window too.

On a CPU a stand-in replays the steps, as in tests/generation/test_cuda_graphs.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from gptcli.config import ModelConfig
from gptcli.generation import context_window, cuda_graphs
from gptcli.generation.context_window import ContextWindow
from gptcli.generation.cuda_graphs import Step
from gptcli.generation.placement import bind_submodules
from gptcli.model.gpt import GPT
from tests.generation.test_cuda_graphs import FakeCapture
from tests.model.reference import random_model
from tests.model.variants import variant

Capture = Callable[[Step], Step]

SHAPES: dict[str, dict[str, Any]] = {
    "cpu": {"vocab_size": 61, "n_layer": 2, "n_head": 4, "n_embd": 32, "block_size": 24},
    "cuda": {"vocab_size": 300, "n_layer": 3, "n_head": 4, "n_embd": 256, "block_size": 160},
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "MHA": ("gpt2", {}),
    "GQA": ("qwen3", {}),
    "windows": ("qwen3 windows", {"sliding_window": 9}),
    "experts": ("mixtral", {"n_expert_active": 4}),
}
"""All experts are active, since rounding may exchange those that are hardly chosen."""
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
BATCHES = {"cpu": (1, 8), "cuda": (1, 256)}


class Recording:
    """Wraps the capture of steps; counts captures and replays. The first `failing` captures fail half-way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, device: torch.device, failing: int = 0) -> None:
        self.captures = self.replays = 0
        self._failing = failing
        plain = FakeCapture() if device.type == "cpu" else cuda_graphs.cuda_graph_capture(device)
        replace_capture(monkeypatch, lambda step: self._capture(plain, step))

    def _capture(self, plain: Capture, step: Step) -> Step:
        if self._failing:
            self._failing -= 1
            plain(_failing_step(step))
            raise AssertionError("a step that waits for the device was captured")
        self.captures += 1
        replay = plain(step)

        def counted() -> Tensor:
            self.replays += 1
            return replay()

        return counted


def replace_capture(monkeypatch: pytest.MonkeyPatch, capture: Capture) -> None:
    """Capture decode steps in another way."""
    monkeypatch.setattr(cuda_graphs, "cuda_graph_capture", lambda device: capture)


def _failing_step(step: Step) -> Step:
    """A step that cannot be captured: in its second call it waits for the device, where a capture forbids that."""
    calls = 0

    def failing() -> Tensor:
        nonlocal calls
        calls += 1
        logits = step()
        if logits.device.type == "cpu":
            raise RuntimeError("operation not permitted when stream is capturing")
        if calls > 1:
            logits.sum().item()
        return logits

    return failing


def model_for(device: torch.device, name: str, dtype: torch.dtype) -> GPT:
    base, changes = MODELS[name]
    config: ModelConfig = variant(base, **SHAPES[device.type], **changes)
    model = random_model(config, torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.3)  # else the wider model is so sensitive that rounding alone changes its logits
    return bind_submodules(model.to(device=device, dtype=dtype))


def logits_of(model: GPT, batch: int, ids: Tensor) -> list[Tensor]:
    """Logits (B, V) after a prompt of 3 tokens and after each further token of ids (B, T)."""
    window = ContextWindow(model, batch)
    logits = [window.prefill(ids[:1, :3]).float().cpu()]
    for t in range(3, ids.shape[1]):
        logits.append(window.append(ids[:, t : t + 1]).float().cpu().clone())  # the next call overwrites them
    assert window.slides > 0
    return logits


def check(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, name: str, dtype: torch.dtype, batch: int, failing: int = 0
) -> Recording:
    """Fails unless recorded and eager logits are close at every position."""
    torch.set_float32_matmul_precision("highest")
    model = model_for(device, name, dtype)
    config = model.config
    ids = torch.randint(config.vocab_size, (batch, config.block_size + config.block_size // 2 + 5)).to(device)
    with monkeypatch.context() as patch:
        patch.setattr(context_window, "supports_cuda_graphs", lambda model: False)
        eager = logits_of(model, batch, ids)
    with monkeypatch.context() as patch:
        recording = Recording(patch, device, failing)
        patch.setattr(context_window, "supports_cuda_graphs", lambda model: True)
        patch.setattr(context_window, "EAGER_STEPS", 2)
        patch.setattr(cuda_graphs, "FIRST_VISIBLE", 8)
        recorded = logits_of(model, batch, ids)
    for position, (one, other) in enumerate(zip(recorded, eager, strict=True)):
        error = (one - other).abs().max() / other.abs().max()
        assert error <= TOLERANCES[dtype], f"position {position}: {error}"
    return recording


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_recorded_steps_are_eager_steps(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, name: str, dtype: torch.dtype, number: int
) -> None:
    recording = check(device, monkeypatch, name, dtype, BATCHES[device.type][number])
    assert recording.captures > 2
    assert recording.replays > SHAPES[device.type]["block_size"]


def test_after_a_failed_capture(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text goes on eagerly, and the next one is recorded again."""
    assert check(device, monkeypatch, "GQA", torch.float32, 2, failing=1).replays == 0
    assert check(device, monkeypatch, "GQA", torch.float32, 2).replays > 0


def test_a_failed_capture_keeps_no_memory(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    if device.type == "cpu":
        pytest.skip("a CPU does not count the memory of tensors")
    check(device, monkeypatch, "GQA", torch.float32, 64, failing=1)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved(device)
    for _ in range(3):
        check(device, monkeypatch, "GQA", torch.float32, 64, failing=1)
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved(device) <= before + (8 << 20)


def test_control_a_mask_that_hides_nothing(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    append = cuda_graphs.StaticCacheView.append

    def all_seen(self: Any, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        k, v, seen = append(self, layer, k, v)
        return k, v, torch.ones_like(seen)

    monkeypatch.setattr(cuda_graphs.StaticCacheView, "append", all_seen)
    with pytest.raises(AssertionError):
        check(device, monkeypatch, "MHA", torch.float32, 1)
